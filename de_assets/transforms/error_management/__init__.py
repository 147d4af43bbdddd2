"""What happens to what is wrong, late, doubled or filtered out."""
