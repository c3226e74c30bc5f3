// SPDX-License-Identifier: Apache-2.0

package privateyarn

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"themis/tests/supervisor"
)

// App is an application of ours (org.themis.yarn.example.CheckpointingMaster): a
// gang of containers that count seconds, save the count and can be resumed.
type App struct {
	Name       string
	User       string // default alice
	Queue      string // default a
	Containers int    // default 1
	GPUs       int    // of each; 0 for none
	Seconds    int    // of work; default 5
	Deaf       bool   // does not listen to what it is told of its lease
	Eager      bool   // starts containers as they come, not only all together
	Fail       int    // so many containers fail after a second
	Avoid      string // a node that it does not want
	Label      string // of nodes that it wants; see Label
	Ask        string // how it asks: "", "opportunistic" or "scheduling-request"
	Attempts   int    // of its master; default 1
	Tags       []string
	Env        map[string]string // of its master
}

// Submitted is an application on the cluster.
type Submitted struct {
	ID string // application_...
	c  *Cluster
	// Dir is where it keeps its state; events says what it saw and did.
	Dir string
}

// Submit submits an application through the ResourceManager's REST interface.
func (c *Cluster) Submit(app App) (*Submitted, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if app.User == "" {
		app.User = "alice"
	}
	if app.Queue == "" {
		app.Queue = "a"
	}
	if app.Name == "" {
		app.Name = "counting"
	}
	var fresh struct {
		ID string `json:"application-id"`
	}
	if err := c.post(ctx, app.User, "/ws/v1/cluster/apps/new-application", nil, &fresh); err != nil {
		return nil, err
	}
	s := &Submitted{ID: fresh.ID, c: c, Dir: filepath.Join(c.Dir, "apps", fresh.ID)}
	argv := append([]string{c.java, "-Xmx96m"}, jvm...)
	argv = append(argv, "-Dlog4j.configuration=file:"+filepath.Join(c.Dir, "conf/log4j.properties"),
		"-cp", "'"+c.classpath("conf")+"'", "org.themis.yarn.example.CheckpointingMaster",
		"--containers", fmt.Sprint(max(app.Containers, 1)), "--gpus", fmt.Sprint(app.GPUs), "--seconds", fmt.Sprint(max(app.Seconds, 1)), "--state", s.Dir)
	for option, on := range map[string]bool{"--deaf": app.Deaf, "--eager": app.Eager} {
		if on {
			argv = append(argv, option)
		}
	}
	for option, value := range map[string]string{"--ask": app.Ask, "--avoid": app.Avoid, "--label": app.Label, "--fail": fmt.Sprint(app.Fail)} {
		if value != "" {
			argv = append(argv, option, value)
		}
	}
	env := []map[string]string{}
	for k, v := range app.Env {
		env = append(env, map[string]string{"key": k, "value": v})
	}
	type object = map[string]any
	return s, c.post(ctx, app.User, "/ws/v1/cluster/apps", object{
		"application-id": fresh.ID, "application-name": app.Name, "queue": app.Queue, "application-type": "THEMIS",
		"max-app-attempts": max(app.Attempts, 1), "application-tags": object{"tag": app.Tags},
		"am-container-spec": object{
			"commands":    object{"command": strings.Join(argv, " ") + " 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"},
			"environment": object{"entry": env},
		},
		"resource": object{"memory": 256, "vCores": 1},
	}, nil)
}

// Report is what the ResourceManager says of an application.
type Report struct {
	ID          string  `json:"id"`
	Name        string  `json:"name"`
	User        string  `json:"user"`
	State       string  `json:"state"`
	FinalStatus string  `json:"finalStatus"`
	Diagnostics string  `json:"diagnostics"`
	Progress    float64 `json:"progress"`
	Containers  int     `json:"runningContainers"`
	StartedMs   int64   `json:"startedTime"`  // submitted, since 1970
	FinishedMs  int64   `json:"finishedTime"` // 0 until it has ended
}

// Report asks for the application's report.
func (s *Submitted) Report() (Report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var got struct {
		App Report `json:"app"`
	}
	err := s.c.get(ctx, "/ws/v1/cluster/apps/"+s.ID, &got)
	return got.App, err
}

// Wait polls until the report satisfies cond.
func (s *Submitted) Wait(timeout time.Duration, cond func(Report) bool) (Report, error) {
	for end := time.Now().Add(timeout); ; time.Sleep(100 * time.Millisecond) {
		r, err := s.Report()
		if err == nil && cond(r) {
			return r, nil
		}
		if time.Now().After(end) {
			return r, fmt.Errorf("%s after %v: %+v %v\n%s", s.ID, timeout, r, err, s.Events())
		}
	}
}

// Trouble is what the cluster says of an application that does not go on: its
// state, and the ends of what its masters wrote.
func (s *Submitted) Trouble() string {
	r, err := s.Report()
	said := fmt.Sprintf("%+v %v\n", r, err)
	logs, _ := filepath.Glob(filepath.Join(s.c.Dir, "nm*/logs", s.ID, "container_*_000001/*"))
	for _, path := range logs {
		data, _ := os.ReadFile(path)
		said += path + ":\n" + supervisor.Tail(string(data), 10) + "\n"
	}
	return said
}

// Kill kills the application.
func (s *Submitted) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.c.do(ctx, http.MethodPut, "root", "/ws/v1/cluster/apps/"+s.ID+"/state", map[string]string{"state": "KILLED"}, nil)
}

// Events is what its master saw and did, a line each; "" before it runs.
func (s *Submitted) Events() string {
	data, _ := os.ReadFile(filepath.Join(s.Dir, "events"))
	return string(data)
}

// Count counts the events that contain a text.
func (s *Submitted) Count(text string) int {
	n := 0
	for _, line := range strings.Split(s.Events(), "\n") {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (c *Cluster) get(ctx context.Context, path string, into any) error {
	return c.do(ctx, http.MethodGet, "root", path, nil, into)
}

func (c *Cluster) post(ctx context.Context, user, path string, body, into any) error {
	return c.do(ctx, http.MethodPost, user, path, body, into)
}

func (c *Cluster) do(ctx context.Context, method, user, path string, body, into any) error {
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(raw)
	}
	at := fmt.Sprintf("http://localhost:%d%s?user.name=%s", c.ports.rms[c.active][4], path, url.QueryEscape(user))
	req, err := http.NewRequestWithContext(ctx, method, at, in)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, raw)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}
