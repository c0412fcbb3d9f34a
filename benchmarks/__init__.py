"""What is measured: speed, accuracy and promises, each beside what people would use instead."""
