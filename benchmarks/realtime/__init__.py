"""What a live conversation costs: a piece of audio, a change of the floor, and fifty conversations at once."""
