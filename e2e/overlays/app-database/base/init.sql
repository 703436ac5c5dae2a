CREATE TABLE ships (id serial PRIMARY KEY, name text NOT NULL DEFAULT 'unnamed');
-- percent % and dollar $ and "quotes"
