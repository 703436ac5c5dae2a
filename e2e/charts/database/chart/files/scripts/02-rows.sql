INSERT INTO ship VALUES ('Möwe', 12.5), ('Albatros', 40);
