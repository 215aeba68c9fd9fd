package cmd

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/jetkeep/jetkeep"

// pkg is a package as `go list` sees it; without its tests.
type pkg struct {
	ImportPath, Dir string
	Standard        bool
	GoFiles         []string
	Imports, Deps   []string
}

// listPackages lists the module's packages, and all that they depend on.
func listPackages(t *testing.T) map[string]*pkg {
	t.Helper()
	c := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard,GoFiles,Imports,Deps", "./...")
	c.Dir = ".."
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Skipf("go list: %v", err)
	}
	all := map[string]*pkg{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = &p
	}
}

// under reports whether path is one of the trees, or below one.
func under(path string, trees ...string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool {
		return path == tree || strings.HasPrefix(path, tree+"/")
	})
}

// engines are the packages that other programs may import.
var engines = []string{module + "/backup", module + "/restore", module + "/verify", module + "/format"}

// TestArchitecture keeps the arrows between packages running down only.
func TestArchitecture(t *testing.T) {
	all := listPackages(t)
	for _, p := range all {
		if !under(p.ImportPath, module) {
			continue
		}
		for _, dep := range p.Deps {
			checkDep(t, all, p.ImportPath, dep)
		}
		for _, imp := range p.Imports {
			checkImport(t, p.ImportPath, imp)
		}
		if under(p.ImportPath, engines...) || p.ImportPath == module+"/internal/jsapi" || p.ImportPath == module+"/internal/snapshot" {
			checkSilent(t, p)
		}
	}
}

// checkDep is about what a package pulls in, however deep.
func checkDep(t *testing.T, all map[string]*pkg, from, dep string) {
	t.Helper()
	fail := func(why string) { t.Helper(); t.Errorf("%s depends on %s: %s", from, dep, why) }
	if from == module+"/format" && !under(dep, module+"/format", "github.com/klauspost/compress") && !all[dep].Standard {
		fail("format stands on the standard library and s2")
	}
	if under(from, engines...) && under(dep, "github.com/spf13", "github.com/schollz/progressbar", module+"/cmd", module+"/internal/ui") {
		fail("engines know nothing of the command line")
	}
	if under(from, module+"/backup") && under(dep, module+"/restore", module+"/verify") {
		fail("a backup needs neither restore nor verify")
	}
	if under(from, module+"/restore") && dep == module+"/backup" {
		fail("a restore needs backups, not the taking of them")
	}
	if from != module && under(from, module) && dep == module {
		fail("nothing depends on main")
	}
}

// checkImport is about what a package names itself.
func checkImport(t *testing.T, from, imp string) {
	t.Helper()
	for _, rule := range []struct {
		imp string
		by  []string
	}{
		{"github.com/schollz/progressbar", []string{module + "/internal/ui"}},
		{"github.com/spf13/cobra", []string{module + "/cmd"}},
		{"github.com/nats-io/nats-server/v2", []string{module + "/internal/embedded", module + "/internal/testnats", module + "/bench"}},
		{module + "/cmd", []string{module}},
		{module + "/internal/testnats", []string{module + "/internal/testnats", module + "/bench"}},
		{"testing", []string{module + "/internal/testnats", module + "/backup/repo/repotest"}},
	} {
		if under(imp, rule.imp) && !slices.Contains(rule.by, from) {
			t.Errorf("%s imports %s: that's for %s only", from, imp, strings.Join(rule.by, ", "))
		}
	}
}

// checkSilent refuses printing and exiting.
func checkSilent(t *testing.T, p *pkg) {
	t.Helper()
	fset := token.NewFileSet()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := s.X.(*ast.Ident)
			if ok && x.Obj == nil && loud(x.Name, s.Sel.Name) {
				t.Errorf("%s: %s.%s: engines return errors, and never print or exit", fset.Position(n.Pos()), x.Name, s.Sel.Name)
			}
			return true
		})
	}
}

func loud(pkg, name string) bool {
	switch pkg {
	case "fmt":
		return strings.HasPrefix(name, "Print")
	case "os":
		return slices.Contains([]string{"Exit", "Stdout", "Stderr", "Stdin"}, name)
	case "log", "slog":
		return true
	}
	return false
}
