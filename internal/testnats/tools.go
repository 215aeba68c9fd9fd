package testnats

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// PeerVersion is the version of the nats CLI that Peer returns.
const PeerVersion = "0.5.0"

// ToolsDir is the cache in which .ci/tools keeps programs: $JETKEEP_TOOLS, or
// else jetkeep-tools in the user's cache directory.
func ToolsDir() string {
	if dir := os.Getenv("JETKEEP_TOOLS"); dir != "" {
		return dir
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "jetkeep-tools")
	}
	return filepath.Join(os.TempDir(), "jetkeep-tools")
}

// Peer is the path of the nats CLI. Without it the test is skipped; in CI it
// fails.
func Peer(t testing.TB) string {
	t.Helper()
	return tool(t, "nats", PeerVersion)
}

// ServerBinary is the path of a nats-server of a version such as "2.14.9".
// Without it the test is skipped; in CI it fails.
func ServerBinary(t testing.TB, version string) string {
	t.Helper()
	return tool(t, "nats-server", strings.TrimPrefix(version, "v"))
}

func tool(t testing.TB, name, version string) string {
	t.Helper()
	path := filepath.Join(ToolsDir(), name+"-v"+version)
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if _, err := os.Stat(path); err != nil {
		missing(t, "no %s v%s: run  .ci/tools %s@%s", name, version, name, version)
	}
	return path
}
