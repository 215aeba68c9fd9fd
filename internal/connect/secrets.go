package connect

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// looksSecret matches an NKey seed and a JWT, which land in an error when
// someone gives them where a file name belongs.
var looksSecret = regexp.MustCompile(`S[ACNOUX][A-Z2-7]{40,}|eyJ[\w-]+\.[\w-]+\.[\w-]*|data:[^\s"]*`)

// userInfo matches the credentials in a URL, be it a valid one or not.
var userInfo = regexp.MustCompile(`://[^/\s",]*@|^[^/\s",]*@`)

// redactServers returns server URLs without credentials.
func redactServers(urls string) string {
	parts := strings.Split(urls, ",")
	for i, p := range parts {
		p = strings.TrimSpace(p)
		if at := strings.LastIndexByte(p, '@'); at >= 0 {
			scheme := ""
			if j := strings.Index(p, "://"); j >= 0 {
				scheme = p[:j+3]
			}
			p = scheme + p[at+1:]
		}
		parts[i] = p
	}
	return strings.Join(parts, ",")
}

// urlSecrets returns the credentials in server URLs, as they're written and as
// they're meant.
func urlSecrets(urls string) []string {
	var found []string
	for p := range strings.SplitSeq(urls, ",") {
		at := strings.LastIndexByte(p, '@')
		if at < 0 {
			continue
		}
		info := p[:at]
		if j := strings.Index(info, "://"); j >= 0 {
			info = info[j+3:]
		}
		user, password, both := strings.Cut(info, ":")
		if !both {
			password = user
		}
		found = append(found, password)
		if plain, err := url.PathUnescape(password); err == nil {
			found = append(found, plain)
		}
	}
	return found
}

// scrub returns err, or without wrapping anything an error with the same text
// and the sentinel of this package, when that text holds a secret.
func (r *Resolved) scrub(err error) error {
	if err == nil {
		return nil
	}
	text := userInfo.ReplaceAllString(looksSecret.ReplaceAllString(err.Error(), "***"), "://***@")
	secrets := slices.Clone(r.secrets)
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range secrets {
		if len(s) > 2 { // shorter ones would tear words apart, and hide nothing
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	if text == err.Error() {
		return err
	}
	for _, kind := range []error{ErrSettings, ErrAuth, ErrConnect} {
		if errors.Is(err, kind) {
			return &scrubbed{text, kind}
		}
	}
	return errors.New(text)
}

// scrubbed is an error of a kind, in other words.
type scrubbed struct {
	text string
	kind error
}

func (e *scrubbed) Error() string { return e.text }
func (e *scrubbed) Unwrap() error { return e.kind }
