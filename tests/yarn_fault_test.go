// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"themis/tests/privateyarn"
)

// TestYarnCoreGone: without a core GPU applications wait for fallback_after, then
// flow as under stock YARN; running containers run on.
func TestYarnCoreGone(t *testing.T) {
	c := startYarn(t, privateyarn.Options{})
	first := submit(t, c, privateyarn.App{Containers: 2, GPUs: 1, Seconds: 20})
	awaitEvent(t, first, "started", 1)
	// A core that cannot come back: its binary's ledger folder is no folder.
	state := filepath.Join(c.Dir, "rm1/themis")
	pid, err := c.CorePID()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(state, state+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	second := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 2, GPUs: 2, Seconds: 2})
	await(t, second, succeeded)
	took := time.Since(killed)
	if !strings.Contains(c.RMLog(), "no answer from the core") {
		t.Error("the ResourceManager did not say that the core is gone")
	}
	t.Logf("the second application ended %v after the kill", took)
	// It comes back, and takes what runs as leases.
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(state+".away", state); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if !strings.Contains(c.RMLog(), "the core is back") {
			return "the core did not come back"
		}
		return ""
	})
	await(t, first, succeeded)
	third := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 1})
	await(t, third, succeeded)
}

// TestYarnWithoutLibrary: the ResourceManager starts, says so in one line, and
// runs as stock.
func TestYarnWithoutLibrary(t *testing.T) {
	c := startYarn(t, privateyarn.Options{Library: "/nonexistent/libthemis.so"})
	app := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 1})
	await(t, app, succeeded)
	if n := strings.Count(c.Said(), "GPUs are scheduled as without Themis"); n != 1 {
		t.Errorf("said so %d times:\n%s", n, c.Said())
	}
}

// TestYarnWrongABI: a library of another release is not used.
func TestYarnWrongABI(t *testing.T) {
	dir := t.TempDir()
	lib := filepath.Join(dir, "libthemis.so")
	source := filepath.Join(dir, "abi.c")
	if err := os.WriteFile(source, []byte("int Java_org_themis_yarn_Shim_abi(void *e, void *c) { (void) e; (void) c; return 99; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", lib, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := startYarn(t, privateyarn.Options{Library: lib})
	app := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 1})
	await(t, app, succeeded)
	if said := c.Said(); strings.Count(said, "GPUs are scheduled as without Themis") != 1 || !strings.Contains(said, "has ABI 99") {
		t.Error(said)
	}
}

// badLibrary is a libthemis.so whose functions throw, or answer with noise.
const badLibrary = `#include <jni.h>
#include <stdlib.h>

static void throw(JNIEnv *env, const char *what)
{
	(*env)->ThrowNew(env, (*env)->FindClass(env, "java/lang/IllegalStateException"), what);
}

JNIEXPORT jint JNICALL Java_org_themis_yarn_Shim_abi(JNIEnv *env, jclass c) { return %d; }
JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_open(JNIEnv *env, jclass c, jbyteArray a, jbyteArray b, jbyteArray d, jbyteArray e, jbyteArray f, jint uid) { return NULL; }
JNIEXPORT jboolean JNICALL Java_org_themis_yarn_Shim_observe(JNIEnv *env, jclass c, jbyteArray s) { throw(env, "observe"); return JNI_FALSE; }
JNIEXPORT jlong JNICALL Java_org_themis_yarn_Shim_silence(JNIEnv *env, jclass c) { return -1; }
JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_check(JNIEnv *env, jclass c, jbyteArray h) { throw(env, "check"); return NULL; }
JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_line(JNIEnv *env, jclass c) { return NULL; }
JNIEXPORT void JNICALL Java_org_themis_yarn_Shim_close(JNIEnv *env, jclass c) { throw(env, "close"); }
JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_latest(JNIEnv *env, jclass c, jlong seen)
{
	jbyte noise[200];
	int n = rand() %% 200;
	jbyteArray out = (*env)->NewByteArray(env, n);

	for (int i = 0; i < n; i++)
		noise[i] = rand();
	(*env)->SetByteArrayRegion(env, out, 0, n, noise);
	return out;
}
`

// TestYarnFaults: the library throws, or answers with noise, at every call. The ResourceManager lives,
// who asks for no GPU is served at once, and as no step succeeds for a minute the others are, too,
// as without Themis.
func TestYarnFaults(t *testing.T) {
	abi := regexp.MustCompile(`THEMIS_ABI (\d+)`)
	header, err := os.ReadFile("../cgo/themis.h")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	lib, source := filepath.Join(dir, "libthemis.so"), filepath.Join(dir, "bad.c")
	var n int
	fmt.Sscan(string(abi.FindSubmatch(header)[1]), &n)
	if err := os.WriteFile(source, fmt.Appendf(nil, badLibrary, n), 0o644); err != nil {
		t.Fatal(err)
	}
	jdk, err := exec.Command("../etc/find-jdk").Output()
	if err != nil {
		t.Fatal(err)
	}
	include := filepath.Join(strings.TrimSpace(string(jdk)), "include")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-I"+include, "-I"+include+"/linux", "-o", lib, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := startYarn(t, privateyarn.Options{Library: lib})
	gpus := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 1, Tags: []string{"themis:runtime=1m"}})
	for range 2 {
		cpu := submit(t, c, privateyarn.App{Containers: 4, Seconds: 1, Tags: []string{"themis:runtime=1m"}})
		await(t, cpu, succeeded)
	}
	await(t, gpus, succeeded)
	log := c.RMLog()
	for _, line := range []string{"themis: a step was skipped", "themis: a submission was not checked", "themis: no step has succeeded for 60 s, GPUs are scheduled as without Themis"} {
		if !strings.Contains(log, line) {
			t.Errorf("the ResourceManager has not said %q", line)
		}
	}
	if n := strings.Count(log, "themis: a step was skipped"); n > 5 {
		t.Errorf("it said %d times that a step was skipped", n)
	}
}

// TestYarnCoreKilled kills the core 50 times (THEMIS_KILLS) at random instants
// while gangs come and go: the ResourceManager lives, running containers run on,
// no node has more GPUs under leases than it has.
func TestYarnCoreKilled(t *testing.T) {
	c := startYarn(t, privateyarn.Options{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	steady := submit(t, c, privateyarn.App{User: "carol", Containers: 2, GPUs: 1, Seconds: 1000})
	awaitEvent(t, steady, "started", 1)
	pid := c.RMPID()
	var apps []*privateyarn.Submitted
	for i, user := range []string{"alice", "bob"} {
		apps = append(apps, submit(t, c, privateyarn.App{User: user, Queue: []string{"a", "b"}[i], Containers: 24, GPUs: 1, Seconds: 2, Eager: true, Tags: []string{"themis:gang=2"}}))
	}
	want := 50
	if n, err := strconv.Atoi(os.Getenv("THEMIS_KILLS")); err == nil { // make soak
		want = n
	}
	for kills, end := 0, time.Now().Add(10*time.Minute); kills < want; {
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		if core, err := c.CorePID(); err == nil && syscall.Kill(core, syscall.SIGKILL) == nil {
			kills++
		}
		if time.Now().After(end) {
			t.Fatalf("%d kills in 10 minutes", kills)
		}
	}
	for _, app := range apps {
		await(t, app, succeeded)
		if n := app.Count("got container"); n != 24 {
			t.Errorf("%s got %d containers for 24 ranks:\n%s", app.ID, n, app.Events())
		}
	}
	if c.RMPID() != pid {
		t.Error("the ResourceManager did not live through it")
	}
	if steady.Count("ended") != 0 {
		t.Errorf("a running container ended:\n%s", steady.Events())
	}
	held := map[string]int{}
	for _, l := range yarnLeases(t, c) {
		for _, p := range l.Places {
			if held[p.Node] += p.GPUs; held[p.Node] > 4 {
				t.Errorf("%d GPUs of %s are under leases", held[p.Node], p.Node)
			}
		}
	}
}
