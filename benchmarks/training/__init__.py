"""Our BERT4Rec trainer beside RecTools' and RecBole's, on one log and the same terms (docs/lab/training-speed.md)."""
