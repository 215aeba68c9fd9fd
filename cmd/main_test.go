package cmd

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary a jetkeep, too, so that scripts and tests can
// run it as a process.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"jetkeep": func() { os.Exit(Main(Build{Version: "v0.0.0-test"})) },
	})
}
