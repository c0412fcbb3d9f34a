"""Our BERT4Rec trainer beside those of RecTools and RecBole, on one log and the same terms (docs/training-speed.md)."""
