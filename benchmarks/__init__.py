"""What is measured: speed, accuracy and promises, each beside what people would use instead."""

import model as model  # before torch: threads that wait sleep (docs/decisions/0003)
