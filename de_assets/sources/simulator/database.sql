-- Tables of the blog's operational database, as the simulator feeds them. Running it again changes nothing.

CREATE TABLE IF NOT EXISTS users (
    id            text PRIMARY KEY,
    login         text NOT NULL,
    email         text NOT NULL,
    country       text NOT NULL,
    registered_at timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL
);

-- Updates and deletions tell whoever captures them what the row was before, large values included.
ALTER TABLE users REPLICA IDENTITY FULL;

CREATE TABLE IF NOT EXISTS users_history (
    change_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id    text NOT NULL,
    login      text NOT NULL,
    email      text NOT NULL,
    country    text NOT NULL,
    changed_at timestamptz NOT NULL,
    operation  text NOT NULL CHECK (operation IN ('I', 'U', 'D'))
);

CREATE INDEX IF NOT EXISTS users_history_by_user ON users_history (user_id, changed_at);

CREATE TABLE IF NOT EXISTS legacy_visits (
    visit_id       text PRIMARY KEY,
    event_time     timestamptz NOT NULL,
    user_id        text NOT NULL,
    page           text NOT NULL,
    ip             text NOT NULL,
    is_deleted     boolean NOT NULL DEFAULT false,
    ingestion_time timestamptz NOT NULL
);

CREATE INDEX IF NOT EXISTS legacy_visits_by_ingestion_time ON legacy_visits (ingestion_time);

-- An update by hand need not care for updated_at: one that leaves it alone is stamped with the time of the statement.
CREATE OR REPLACE FUNCTION stamp_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at THEN
        NEW.updated_at := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER stamp_user BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION stamp_user();

-- A deletion has no row to carry its time: the setting blog.changed_at does, where there is one.
CREATE OR REPLACE FUNCTION keep_user_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO users_history (user_id, login, email, country, changed_at, operation)
        VALUES (OLD.id, OLD.login, OLD.email, OLD.country,
                coalesce(nullif(current_setting('blog.changed_at', true), '')::timestamptz, clock_timestamp()), 'D');
    ELSE
        INSERT INTO users_history (user_id, login, email, country, changed_at, operation)
        VALUES (NEW.id, NEW.login, NEW.email, NEW.country, NEW.updated_at, left(TG_OP, 1));
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER keep_user_history AFTER INSERT OR UPDATE OR DELETE ON users
    FOR EACH ROW EXECUTE FUNCTION keep_user_history();
