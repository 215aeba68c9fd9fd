package embedded

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
)

// configuredBy reports whether the process is a nats-server that stores in
// storeDir. What can't be read or understood counts as no.
func configuredBy(pid int, storeDir string) bool {
	if !strings.HasPrefix(processName(pid), "nats-server") {
		return false
	}
	cmdline, err := os.ReadFile(procFile(pid, "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	dir := argument(args, "sd", "store_dir")
	if dir == "" {
		dir = configuredDir(inProcess(pid, argument(args, "c", "config")))
	}
	theirs, err := os.Stat(inProcess(pid, dir))
	if err != nil || dir == "" {
		return false
	}
	ours, err := os.Stat(storeDir)
	return err == nil && os.SameFile(theirs, ours)
}

// inProcess is a path as the process means it, which may live in a container.
func inProcess(pid int, path string) string {
	switch {
	case path == "":
		return ""
	case filepath.IsAbs(path):
		return filepath.Join(procFile(pid, "root"), path)
	}
	return filepath.Join(procFile(pid, "cwd"), path)
}

// argument finds the value of a flag: -n v, --n v, -n=v or --n=v.
func argument(args []string, names ...string) string {
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			continue
		}
		flag, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		for _, name := range names {
			switch {
			case flag != name:
			case joined:
				return value
			case i+1 < len(args):
				return args[i+1]
			}
		}
	}
	return ""
}

// configuredDir is the store directory that a configuration file names. The file
// is only parsed, not acted on as the server's own reading of it would.
func configuredDir(file string) string {
	if file == "" {
		return ""
	}
	top, err := conf.ParseFile(file)
	if err != nil {
		return ""
	}
	if js, ok := lookUp(top, "jetstream").(map[string]any); ok {
		if dir := storeDirOf(js); dir != "" {
			return dir
		}
	}
	return storeDirOf(top)
}

func storeDirOf(m map[string]any) string {
	for _, key := range []string{"store_dir", "storedir", "store"} {
		if dir, ok := lookUp(m, key).(string); ok {
			return dir
		}
	}
	return ""
}

// lookUp ignores case, as the server does.
func lookUp(m map[string]any, key string) any {
	for k, v := range m {
		if strings.EqualFold(k, key) {
			return v
		}
	}
	return nil
}
