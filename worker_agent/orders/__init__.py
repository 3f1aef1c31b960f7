"""What the Platform orders this machine to do: taken once, carried out once, answered for."""
