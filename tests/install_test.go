// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"themis/tests/privateyarn"
)

// TestInstallYarn: a ResourceManager runs from what make install-yarn puts there,
// the library found beside the jar. With our properties taken out and restarted it
// is a stock one, and what ran runs on; make uninstall leaves no file.
func TestInstallYarn(t *testing.T) {
	root := t.TempDir()
	run := func(target string) {
		t.Helper()
		if out, err := exec.Command("make", "-C", "..", target, "DESTDIR="+root, "PREFIX=/usr").CombinedOutput(); err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
	}
	run("install-yarn")
	build, err := filepath.Abs("../build")
	if err != nil {
		t.Fatal(err)
	}
	// What a cluster is started from, as in build/, but installed.
	from := t.TempDir()
	for name, target := range map[string]string{
		"bin": filepath.Join(root, "usr/bin"), "lib": filepath.Join(root, "usr/lib/themis"), "yarn": filepath.Join(build, "yarn"),
	} {
		if err := os.Symlink(target, filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	c := startYarn(t, privateyarn.Options{Build: from, Nodes: 1, Site: map[string]string{"themis.library": ""}})
	first := submit(t, c, privateyarn.App{Containers: 2, GPUs: 1, Seconds: 40})
	awaitEvent(t, first, "started", 1)
	if leases := yarnLeases(t, c); leased(leases) != 2 {
		t.Errorf("leases: %+v", leases)
	}
	if err := c.StopRM(); err != nil {
		t.Fatal(err)
	}
	site := filepath.Join(c.Dir, "rm1/yarn-site.xml")
	text, err := os.ReadFile(site)
	if err != nil {
		t.Fatal(err)
	}
	ours := regexp.MustCompile(`(?m)^.*(org\.themis\.|<name>themis\.).*\n`)
	if err := os.WriteFile(site, ours.ReplaceAll(text, nil), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.StartRM(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CorePID(); err == nil {
		t.Error("there is a core without our properties")
	}
	await(t, submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 2, GPUs: 1, Seconds: 1}), succeeded)
	await(t, first, succeeded)
	if n := first.Count("got container"); n != 2 {
		t.Errorf("what ran did not run on:\n%s", first.Events())
	}
	run("uninstall")
	filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s is still there", strings.TrimPrefix(path, root))
		}
		return err
	})
}
