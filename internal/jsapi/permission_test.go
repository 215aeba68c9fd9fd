package jsapi

import "testing"

func TestPermissionAllowsWhatIsAllowedAndNotDenied(t *testing.T) {
	for _, c := range []struct {
		p    *Permission
		s    string
		want bool
	}{
		{nil, "a.b", true},
		{&Permission{}, "a.b", true},
		{&Permission{Allow: []string{"a.*"}}, "a.b", true},
		{&Permission{Allow: []string{"a.*"}}, "b.b", false},
		{&Permission{Deny: []string{"a.>"}}, "a.b", false},
		{&Permission{Deny: []string{"a.>"}}, "b", true},
		{&Permission{Allow: []string{">"}, Deny: []string{"a.b"}}, "a.b", false},
	} {
		if got := c.p.Allows(c.s); got != c.want {
			t.Errorf("%+v allows %s: %v", c.p, c.s, got)
		}
	}
}
