"""What each step of the exported graph gains."""
