CREATE TABLE ship (
    name text PRIMARY KEY,
    length_m numeric CHECK (length_m > 0)
);
