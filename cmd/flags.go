package cmd

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// sizeValue is a flag for a number of bytes: plain, or with a unit.
type sizeValue int64

var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"b", 1}, {"", 1},
}

// Set parses "131072", "128KiB", "1.5 GB". A bare K or M is refused, since some
// tools read it as 1000 and some as 1024.
func (v *sizeValue) Set(s string) error {
	text := strings.ToLower(strings.TrimSpace(s))
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || strings.Trim(strings.TrimSpace(number), "0123456789.") != "" || n*u.bytes >= math.MaxInt64 {
			break
		}
		*v = sizeValue(n * u.bytes)
		return nil
	}
	return fmt.Errorf("not a size such as 131072, 128KiB or 1GB")
}

// String writes the size with the largest unit that leaves no fraction.
func (v *sizeValue) String() string {
	for _, u := range []int{3, 2, 1, 0} {
		if b := int64(sizeUnits[u].bytes); *v != 0 && int64(*v)%b == 0 {
			return fmt.Sprintf("%d%siB", int64(*v)/b, strings.ToUpper(sizeUnits[u].name[:1]))
		}
	}
	return strconv.FormatInt(int64(*v), 10)
}

// Type names the value in help texts.
func (v *sizeValue) Type() string { return "size" }

var _ pflag.Value = (*sizeValue)(nil)

// repoFlag is the repository, of the command line or the environment.
type repoFlag struct{ path string }

func (r *repoFlag) AddFlags(f *pflag.FlagSet) {
	f.StringVarP(&r.path, "repo", "r", "", "repository `directory` ($JETKEEP_REPO)")
}

// value returns the repository's path, or "" when none was named.
func (r *repoFlag) value() string {
	if r.path != "" {
		return r.path
	}
	return os.Getenv("JETKEEP_REPO")
}

// jsonFlag adds --json, which wantsJSON has read already.
func jsonFlag(f *pflag.FlagSet) {
	f.Bool("json", false, "JSON lines on standard output (docs/json.md)")
}

// wantsJSON looks for --json by itself, since what is wrong with the other
// flags has to be said in JSON, too.
func wantsJSON(args []string) bool {
	json := false
	for _, a := range args {
		if a == "--" {
			break
		}
		if a == "--json" {
			json = true
		} else if v, ok := strings.CutPrefix(a, "--json="); ok {
			json, _ = strconv.ParseBool(v)
		}
	}
	return json
}
