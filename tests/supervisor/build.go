// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// BuildDir is the folder with what is tested: the given one, else $THEMIS_BUILD,
// else build/ beside the nearest go.mod above.
func BuildDir(given string) (string, error) {
	if dir := cmp.Or(given, os.Getenv("THEMIS_BUILD")); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "build"), nil
		}
	}
	return "", errors.New("no go.mod above the working folder; set THEMIS_BUILD")
}

// Tail is the last lines of a text, at most so many.
func Tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
