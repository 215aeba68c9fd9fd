// jetkeep backs up NATS JetStream streams and restores them.
package main

import (
	"os"

	"github.com/jetkeep/jetkeep/cmd"
)

// Set by the release build with -ldflags -X.
var (
	version string
	commit  string
)

func main() {
	os.Exit(cmd.Main(cmd.Build{Version: version, Commit: commit}))
}
