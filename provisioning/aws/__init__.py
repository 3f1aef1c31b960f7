"""Amazon EC2, by boto3 in threads of its own, every retry of the library's off."""
