"""The API's documents: requests, responses, timestamps, and validation errors."""
