"""The judge: scores each live event by the models of a bundle folder, and decides a candidate's trial."""
