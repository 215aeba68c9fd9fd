package cmd

import (
	"runtime"
	"testing"
)

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "1": 1, "131072": 131072, "128KiB": 128 << 10, "128kib": 128 << 10, "8MiB": 8 << 20, "1GB": 1e9,
		"1.5 GB": 15e8, "2TiB": 2 << 40, "512B": 512, "3kb": 3000, " 7 MB ": 7e6,
	} {
		var v sizeValue
		if err := v.Set(in); err != nil || int64(v) != want {
			t.Errorf("%q is %d, %v; expected %d", in, v, err, want)
		}
		var again sizeValue
		if err := again.Set(v.String()); err != nil || again != v {
			t.Errorf("%q is written %q, which is read as %d, %v", in, v.String(), again, err)
		}
	}
	for _, in := range []string{"", "K", "8M", "8k", "-1", "-1KiB", "1e3", "0x10", "NaN", "inf", "1..5MB", "9999999TiB", "KiB", "1 2", "128 K i B"} {
		v := sizeValue(7)
		if err := v.Set(in); err == nil || v != 7 {
			t.Errorf("%q is taken for %d", in, v)
		}
	}
}

func TestWantsJSON(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{
		{nil, false},
		{[]string{"backup", "S"}, false},
		{[]string{"backup", "S", "--json"}, true},
		{[]string{"--json=true"}, true},
		{[]string{"--json=1"}, true},
		{[]string{"--json", "--json=false"}, false},
		{[]string{"verify", "--", "--json"}, false},
	} {
		if got := wantsJSON(c.args); got != c.want {
			t.Errorf("%q: %v", c.args, got)
		}
	}
}

func TestIsPath(t *testing.T) {
	for arg, want := range map[string]bool{
		"ORDERS": false, "ORDERS@latest": false, "a.b": false, "KV_x": false, "-x": false,
		"./x": true, ".": true, "..": true, "/x": true, "x/": true, "x/y": true, ".hidden": true,
		`x\y`: runtime.GOOS == "windows",
	} {
		if got := isPath(arg); got != want {
			t.Errorf("%q: %v", arg, got)
		}
	}
}
