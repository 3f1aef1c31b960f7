"""What crosses the wire: values, signatures and codes that both ends must agree on. No I/O."""
