"""Operations: the durable record of something that takes time, and whoever carries it on."""
