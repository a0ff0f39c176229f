//! What is drawn while something takes long: after 250 ms, on stderr, only on a terminal.
