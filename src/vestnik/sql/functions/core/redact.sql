-- What must not be kept of a text: phones, addresses of people, tokens, passwords, authorization headers. The rules are those of
-- vestnik/redaction.py, letter by letter; a test holds one to the other.

-- The text with a mask for each secret, and unchanged when it holds none.
create or replace function core.redact_text(p_text text) returns text
language plpgsql immutable strict parallel safe as $$
declare
    plain text;
    found text;
begin
    if p_text !~* ($re$[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20e3\ufe00-\ufe0f\ufeff\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u3000\u3002\ufe62\ufe6b$re$
        || $re$\uff01-\uff5e\U0001d7ce-\U0001d7ff]|[@=+]|%[24]|&#|&commat|u00[234]|x40|[\[(](?:at|[сС][оО][бБ]|[2-9][0-9]{2}[)])$re$
        || $re$|private|auth|cookie|pass|pwd|secret|token|key|signature|credential|sess|[пП][аА][рР][оО]|[тТ][оО][кК]|[сС][еЕ][кК]$re$
        || $re$|bearer|basic|[0-9]{5}(?::|%3)|(?:push|sess|link)_|whsec_|eyj|sk-|gh[oprsu]_|k_live|k_test|npm_|glsa|sg[.]$re$
        || $re$|aqvn|asia|hooks|webhooks|-u |_pat_|glpat|xox|aiza|ya29|y0_|vk1|hf_|akia|tel|phone|mobile|whats|[тТ]ел|[мМ]об$re$
        || $re$|(?<![0-9.])9[0-9]{2}[ -]|[0-9]{4}[ -][0-9]{4}[ -]|[a-z][\u0400-\u04ff]|[\u0400-\u04ff][a-z]|(?<![0-9])(?:00[ -]?)?[78]$re$
        || $re$(?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[(]?[3-9]|[ -][0-9][ -])$re$) then
        return p_text;
    end if;
    plain := core.plain_signs(p_text);
    found := plain;
    -- A private key.
    found := regexp_replace(found,
        $re$-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-[^-])*(?:-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?$re$,
        '***', 'g');
    -- Name and password in an address.
    found := regexp_replace(found,
        $re$://(?:[^/:@ \t\r\n"'<>]*:(?![0-9]{1,5}/)[^/ \t\r\n"'<>]*(?:/[^/@ \t\r\n"'<>]*){0,3}|[^/ \t\r\n"'<>]*)@$re$,
        '://***@', 'g');
    -- Headers.
    found := regexp_replace(found,
        $re$((?:authorization|x-auth[a-z-]{0,20})\\*["']?[ \t]*[=:][ \t]*)(?:(\\+")(?:[^"\\]|\\+[^"\\])*|(")(?:[^"\\]$re$
        || $re$|\\.)*|(')[^']*|digest[^\r\n]*|(?:[a-z][a-z0-9-]*[ \t]+)?[^ \t\r\n"',;&}]+)$re$,
        '\1\2\3\4***', 'gi');
    found := regexp_replace(found,
        $re$(cookie2?\\*["']?[ \t]*[=:][ \t]*)(?:(\\+")(?:[^"\\]|\\+[^"\\])*|(")(?:[^"\\]|\\.)*|(')[^']*|[^ \t\r\n"'{}\[\]][^\r\n"'{}\[\]]*)$re$,
        '\1\2\3\4***', 'gi');
    -- Whatever is named like a secret.
    found := regexp_replace(found,
        $re$((?:[pрР][aаА][sѕЅ]{2}(?:w[oоО]rd|wd|[pрР]hr[aаА][sѕЅ][eеЕ])|(?<![a-z])(?:pass|auth)(?=\\*[\"']|=)|pwd|[sѕЅ][eеЕ][cсС]r[eеЕ]t$re$
        || $re$(?!ar[iy])|t[oоО][kкК][eеЕ]n(?!s)|api[._-]?key|(?:access|private|signing|auth)[_-]?key|signature|credential$re$
        || $re$|sess(?:ion)?[_-]?(?:id|key)|[Пп][Ааa][Ррp][Ооo][Лл][ЬьЯяЮю]|[Ттt][Ооo][Ккk][Ееe][Нн]|[Ссc][Ееe][Ккk][Ррp][Ееe][Ттt]$re$
        || $re$(?![Аа][Рр]))[a-z0-9_-]{0,30}\\*["']?[ \t\r\n]*(?:=>?|:|%(?:25){0,2}3[da]|\\{1,8}u003[da])[ \t\r\n]*)(?:(\\+")$re$
        || $re$(?:[^"\\]|\\+[^"\\])*|(")(?:[^"\\]|\\.)*|(')[^']*|«[^»]*»?|(?!(?:null|none|true|false)(?:[ \t\r\n"'&,;{}\[\]$re$
        || $re$()<>]|\Z))(?:(?:bearer|basic)[ \t]+)?[^« \t\r\n"'&,;{}\[\]()<>][^ \t\r\n"'&,;{}\[\]()<>]*)$re$,
        '\1\2\3\4***', 'gi');
    -- Said to a program, put into an element, or the end of an address that is a key by itself.
    found := regexp_replace(found,
        $re$((?:^|[ \t"'])(?:(?:-u|--user|--proxy-user)[ =]["']?[^ \t\r\n"':=]{1,64}:|--[a-z-]{0,30}(?:password|passwd$re$
        || $re$|token|secret|api-?key)[a-z-]{0,20}[ ]["']?)|hooks[.]slack[.]com/services/|discord(?:app)?[.]com/api/webhooks/)[^ \t\r\n"'<>]+$re$
        || $re$|(<[a-z:_-]{0,30}(?:password|passwd|token(?!s)|secret|api-?key)[a-z_-]{0,20}>)[^<>]+$re$,
        '\1\2***', 'gi');
    -- Credentials behind their scheme.
    found := regexp_replace(found,
        $re$((?:[Bb]earer|BEARER|[Bb]asic|BASIC)(?:[ \t\r\n]|%(?:25){0,2}20)+)(?!realm=)(?:(?=[A-Za-z0-9._~+/:-]*(?:[0-9=_]$re$
        || $re$|[a-z][A-Z]|[.][A-Za-z]))(?:[A-Za-z0-9._~+/=:-]{6,}|[A-Za-z0-9._~+/=:-]{1,5}\Z)|[A-Za-z0-9._~+/=:-]{16,})$re$,
        '\1***', 'g');
    -- Tokens that show by their form: bots, our own, JWT, well-known services.
    found := regexp_replace(found,
        $re$[0-9]{5,20}(?::|%(?:25){0,2}3[Aa]|\\{1,8}u003[Aa])[A-Za-z0-9_-]{20,}|[0-9]{6,20}(?::|%(?:25){0,2}3[Aa]|\\{1,8}u003[Aa])$re$
        || $re$(?:AA[A-Za-z0-9_-]*|A[A-Za-z0-9_-]?\Z)|v(?:key|push|sess|link)_(?:[A-Za-z0-9_-]{6,}|[A-Za-z0-9_-]*\Z)|whsec_$re$
        || $re$(?:[A-Za-z0-9+/=_-]{6,}|[A-Za-z0-9+/=_-]*\Z)|eyJ[A-Za-z0-9_-]{6,}(?:[.][A-Za-z0-9_-]*){0,4}|eyJ[A-Za-z0-9_-]*\Z$re$
        || $re$|(^|[^A-Za-z0-9])(?:(?:sk-|[prs]k_(?:live|test)_|gh[oprsu]_|github_pat_|glpat-|glsa_|npm_|xox[abeprs]-|AIza$re$
        || $re$|AQVN|ya29[.]|y0_|vk1[.]a[.]|hf_|SG[.][A-Za-z0-9_-]{16,32}[.])[A-Za-z0-9_-]{16,}|A[KS]IA[0-9A-Z]{12,})$re$,
        '\1***', 'g');
    -- Long random values behind a "=", and short ones in a query.
    found := regexp_replace(found,
        $re$((?:^|[^A-Za-z0-9_=-])(?![A-Za-z0-9_-]*(?:hash|sha256|sha1|md5|etag|id|ref|cursor)=)[A-Za-z0-9_-]*=["']?)$re$
        || $re$(?![0-9a-fA-F]{8}-[0-9a-fA-F]{4}-)(?=[A-Za-z0-9+_-]*[0-9])[A-Za-z0-9+_-]{32,}[A-Za-z0-9+/_=-]*|([?&](?:key$re$
        || $re$|sig|sign|auth|hash|code)=)[^& \t\r\n\u00a0"'<>#]{8,}$re$,
        '\1\2***', 'g');
    -- Addresses of people; at the end of a text also half of one.
    found := regexp_replace(found,
        $re$(^|[^A-Za-z0-9_.+%!#$^~\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-])(?:[A-Za-z0-9_.+%!#$^~\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+@$re$
        || $re$(?:[A-Za-z\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff][.A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]*)?\Z$re$
        || $re$|(?:[A-Za-z0-9_.+%!#$^~\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+|"[^"@\\<>]{1,64}")(?:@(?![1-4]x[.])|%(?:25){0,2}40$re$
        || $re$|&(?:#(?:0{0,5}64|[xX]0{0,5}40)|commat);|\\{1,8}(?:u00|x)40| ?[\[(](?:at|AT|собака)[\])] ?)(?:[A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+$re$
        || $re$(?:(?:[.]| ?[\[(](?:dot|DOT|точка)[\])] ?)[A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+)*(?:[.]| ?[\[$re$
        || $re$(](?:dot|DOT|точка)[\])] ?)[A-Za-z\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff][A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+$re$
        || $re$|\[[0-9A-Fa-f.:]{3,45}\])(?:[A-Za-z0-9_.+%!#$^~\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]*(?:@(?![1-4]x[.])$re$
        || $re$|%(?:25){0,2}40|&(?:#(?:0{0,5}64|[xX]0{0,5}40)|commat);|\\{1,8}(?:u00|x)40| ?[\[(](?:at|AT|собака)[\])] ?)$re$
        || $re$(?:[A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+(?:(?:[.]| ?[\[(](?:dot|DOT|точка)[\])] ?)[A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+)*$re$
        || $re$(?:[.]| ?[\[(](?:dot|DOT|точка)[\])] ?)[A-Za-z\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff][A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+$re$
        || $re$|\[[0-9A-Fa-f.:]{3,45}\]))*)$re$,
        '\1***', 'g');
    -- Phones: international, at home, and whatever is called one.
    found := regexp_replace(found,
        $re$(?:\+|%2[Bb]|\\{1,8}u002[Bb])[ (]{0,2}(?![0-9]{4} [0-9]{4}-)(?:[1-9](?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]){5,13}\Z$re$
        || $re$|7(?:(?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]){10}(?![0-9])|[0-9]{11,14}$re$
        || $re$(?![0-9]))|[1-689](?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]){7,14}(?![0-9]))$re$
        || $re$|(?<![0-9A-Fa-f-])[2-6][0-9]{3}[ -][0-9]{4}[ -][0-9]{4}[ -][0-9]{4}(?![0-9A-Fa-f])$re$,
        '***', 'g');
    found := regexp_replace(found,
        $re$(^|[^0-9.-]|(?:^|[^0-9])[.]|[0-9A-Za-zА-Яа-яЁё]-)(?:00)?[78][3489][0-9]{9}(?![0-9A-Za-z_])(?![.][0-9])|(^$re$
        || $re$|[^0-9.]|(?:^|[^0-9])[.])(?:[78][ -]?[(][3-9][0-9]{0,4}[)]?(?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]){0,9}\Z$re$
        || $re$|(?:00[ -]?)?(?![78][0-9]{10})(?:[78][ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[(]?[347-9][0-9]{2}[)]?$re$
        || $re$(?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]){7}|[78](?:[ -][0-9]){10}(?![ -][0-9]))$re$
        || $re$(?![0-9A-Za-z_])|9[0-9]{2}[ -][0-9]{3}[ -][0-9]{2}[ -][0-9]{2}(?![0-9A-Za-z_])|[(][3489][0-9]{2}[)][ \t\r\n$re$
        || $re$().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]{3}[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]{2}[ \t\r\n$re$
        || $re$().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]{2}(?![0-9])|[(][2-9][0-9]{2}[)][ -]?[0-9]{3}-[0-9]{4}$re$
        || $re$(?![0-9]))$re$,
        '\1\2***', 'g');
    found := regexp_replace(found,
        $re$((?:(?:^|[^A-Za-z])(?:[Tt]el(?:ephone)?|[Pp]hone|PHONE|[Mm]obile|[Ww]hats[Aa]pp)|_phone|[Тт]ел(?:ефон[а-я]{0,3})?$re$
        || $re$|[Мм]об)(?:[ _]?n(?:umber|um|r|o))?[ "'.:=№\\]{1,6})[0-9(](?:[ ().-]{0,2}[0-9]){6,14}$re$,
        '\1***', 'g');
    return case when found = plain then p_text else found end;
end $$;

-- Without what hides a character from a rule and from nobody's eye: invisible ones, and other forms of the same sign.
create or replace function core.plain_signs(p_text text) returns text
language plpgsql immutable strict parallel safe as $$
begin
    if p_text !~ ($re$[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20e3\ufe00-\ufe0f\ufeff\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u3000\u3002\ufe62\ufe6b\uff01-\uff5e\U0001d7ce-\U0001d7ff]$re$) then
        return p_text;
    end if;
    return translate(
        regexp_replace(p_text, '[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20e3\ufe00-\ufe0f\ufeff]', '', 'g'),
        $signs$！＂＃＄％＆＇（）＊＋，－．／０１２３４５６７８９：；＜＝＞？＠ＡＢＣＤＥＦＧＨＩＪＫＬＭＮＯＰＱＲＳＴＵＶＷＸＹＺ［＼］＾＿｀ａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ｛｜｝～٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹०१२३४५६७८९𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗𝟘𝟙𝟚𝟛𝟜𝟝𝟞𝟟𝟠𝟡𝟢𝟣𝟤𝟥𝟦𝟧𝟨𝟩𝟪𝟫𝟬𝟭𝟮𝟯𝟰𝟱𝟲𝟳𝟴𝟵𝟶𝟷𝟸𝟹𝟺𝟻𝟼𝟽𝟾𝟿　。﹢﹫$signs$,
        $signs$!"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrstuvwxyz{|}~01234567890123456789012345678901234567890123456789012345678901234567890123456789 .+@$signs$);
end $$;

-- Every text inside, and whatever is named like a secret. Deeper than any answer of a platform it is masked as a whole, so
-- that no nesting is ever too deep for the stack.
create or replace function core.redact(p_value jsonb, p_depth integer default 0) returns jsonb
language plpgsql immutable strict parallel safe as $$
begin
    case jsonb_typeof(p_value)
    when 'string' then
        return to_jsonb(core.redact_text(p_value #>> '{}'));
    when 'object', 'array' then
        if p_depth >= 32 then
            return '"***"';
        end if;
    else
        return p_value;
    end case;
    if jsonb_typeof(p_value) = 'array' then
        return (select coalesce(jsonb_agg(core.redact(x.item, p_depth + 1) order by x.n), '[]')
                from jsonb_array_elements(p_value) with ordinality x (item, n));
    end if;
    -- The list form of headers and cookies: {"name": "Cookie", "value": "…"}.
    return (select coalesce(jsonb_object_agg(core.redact_text(x.name),
                case when x.item not in ('null', 'true', 'false', '""')
                          and (core.names_secret(x.name)
                               or (x.name = 'value' and jsonb_typeof(p_value -> 'name') = 'string' and core.names_secret(p_value ->> 'name')))
                     then '"***"' else core.redact(x.item, p_depth + 1) end), '{}')
            from jsonb_each(p_value) x (name, item));
end $$;

create or replace function core.names_secret(p_name text) returns boolean
language sql immutable strict parallel safe as $$
    select p_name ~* ($re$pass(?:word|wd|phrase)|(?:^|[_-])pass\Z|pwd|secret(?!ar[iy])|token(?!s)|api[_-]?key|(?:access|private|signing)[_-]?key$re$
        || $re$|authorization|signature|credential|cookie|sess(?:ion)?[_-]?(?:id|key)|phone|e-?mail|[Пп]арол|[Тт]окен|[Сс]екрет$re$
        || $re$|[Тт]елефон|[Пп]очта$re$)
$$;
