-- A template says in which markup its own words are written.

alter table autopost.templates
    add column parse_mode text not null default 'None' check (parse_mode in ('HTML', 'Markdown', 'None'));
