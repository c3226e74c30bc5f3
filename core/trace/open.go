// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Open reads a workload file, plain or compressed with gzip. Of a tar archive
// one file is read: "raw-traces.tar.gz:cluster01" names it, with or without its
// ending; an archive of one file needs no name. "-" is standard input.
func Open(path string, o Options) (*Trace, error) {
	data, title, err := load(path)
	if err != nil {
		return nil, err
	}
	return read(data, path, title, o)
}

// load returns the unpacked bytes of a file or of an archive's member, and the
// name of what was read.
func load(path string) ([]byte, string, error) {
	if path == "-" {
		return unpack(os.Stdin, "standard input", "")
	}
	file, member := path, ""
	if i := strings.LastIndexByte(path, ':'); i > 0 {
		if _, err := os.Stat(path); err != nil {
			file, member = path[:i], path[i+1:]
		}
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, "", &Error{File: file, Bad: Bad{Why: "is a folder"}, Hint: "name a file in it"}
	}
	return unpack(f, path, member)
}

// unpack reads r to its end, through gzip and tar if it is that.
func unpack(r io.Reader, file, member string) (data []byte, title string, err error) {
	b := bufio.NewReaderSize(r, 1024)
	zipped := false
	if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, "", &Error{File: file, Bad: Bad{Why: "is broken as a gzip file: " + err.Error()}}
		}
		b, zipped = bufio.NewReaderSize(z, 1024), true
	}
	if head, _ := b.Peek(512); len(head) == 512 && string(head[257:262]) == "ustar" {
		return untar(tar.NewReader(b), file, member)
	}
	if member != "" {
		return nil, "", &Error{File: file, Bad: Bad{Why: "is no archive, so it has no " + quote(member)}, Hint: "name the file alone"}
	}
	data, err = all(b, file)
	if err != nil && zipped {
		err = &Error{File: file, Bad: Bad{Why: "is broken as a gzip file: " + err.Error()}}
	}
	return data, file, err
}

func all(r io.Reader, file string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, bytesMost+1))
	if err == nil && len(data) > bytesMost {
		err = &Error{File: file, Bad: Bad{Why: fmt.Sprintf("is longer than %d MiB", bytesMost>>20)}, Hint: "cut it into parts"}
	}
	return data, err
}

// untar finds the member, or the only file but for licences and read-mes.
func untar(t *tar.Reader, file, member string) (data []byte, title string, err error) {
	var members []string
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, "", &Error{File: file, Bad: Bad{Why: "is broken as a tar file: " + err.Error()}}
		}
		base := filepath.Base(h.Name)
		if h.Typeflag != tar.TypeReg || strings.HasPrefix(base, "LICENSE") || strings.HasPrefix(base, "README") {
			continue
		}
		members = append(members, base)
		if member == base || member == stem(base) || member == h.Name || member == "" && len(members) == 1 {
			if data, err = all(t, file); err != nil {
				return nil, "", &Error{File: file, Bad: Bad{Why: "is broken as a tar file: " + err.Error()}}
			}
			title = base
		}
	}
	switch {
	case len(members) == 0:
		return nil, "", &Error{File: file, Bad: Bad{Why: "is an archive without files"}}
	case member == "" && len(members) > 1:
		return nil, "", &Error{File: file, Bad: Bad{Why: "is an archive of " + strings.Join(members, ", ")}, Hint: "name one, as in " + filepath.Base(file) + ":" + stem(members[0])}
	case title == "":
		return nil, "", &Error{File: file, Bad: Bad{Why: "has no " + quote(member)}, Hint: "it has " + strings.Join(members, ", ")}
	}
	return data, title, nil
}
