package plugins

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestJobSignalsBeforeServe: signals to all processes of a job end no plugin that has not
// got as far as to handle them.
func TestJobSignalsBeforeServe(t *testing.T) {
	c := open(t, self(t, "signaled early"))
	if _, err := c.Describe(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSignalBeforeTheProgram: a signal that ends the process before the plugin's own code
// runs does not end the job either: the plugin is started again.
func TestSignalBeforeTheProgram(t *testing.T) {
	for _, needsFolder := range []bool{false, true} {
		if needsFolder {
			withoutServe(t)
		}
		spec := self(t, "ended once")
		spec.Env = append(spec.Env, endedKey+"="+filepath.Join(t.TempDir(), "ended"))
		c := open(t, spec)
		if _, err := c.Describe(t.Context()); err != nil {
			t.Error(err)
		}
		c.Shutdown()
	}
}

// TestKilledInTheStart kills hosts at many points of the start of a plugin. No process and
// nothing in the file system is left. Of a plugin that needs a folder for its socket, the
// folder may be left for the moment before there is a process to remove it; the next start
// of a plugin then does.
func TestKilledInTheStart(t *testing.T) {
	for _, plugin := range []string{"mirror", "listens"} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			k := killer{t: t, plugin: plugin}
			whole := k.run(time.Minute, unix.SIGKILL)
			const points = 24
			each := make(chan int)
			var workers sync.WaitGroup
			for range 4 {
				workers.Go(func() {
					for i := range each {
						k.run(whole*time.Duration(i)/points, []unix.Signal{unix.SIGKILL, unix.SIGINT, unix.SIGTERM}[i%3])
					}
				})
			}
			for i := range points {
				each <- i
			}
			close(each)
			workers.Wait()
		})
	}
}

type killer struct {
	t      *testing.T
	plugin string
}

// run starts a host, kills it after some time or when its plugin is there, checks that
// nothing is left, and returns how long the host lived.
func (k *killer) run(after time.Duration, s unix.Signal) time.Duration {
	if signal.Ignored(s) { // by a shell, for a program in the background
		s = unix.SIGTERM
	}
	dir, err := os.MkdirTemp("/tmp", "run") // of its own: another host would clean up
	if err != nil {
		k.t.Error(err)
		return 0
	}
	defer os.RemoveAll(dir)
	mark := "MSCCLPP_PLUGIN_TEST_MARK=" + dir
	host := exec.Command("/proc/self/exe")
	host.Env = append(os.Environ(), roleKey+"=host", roleKey+"_PLUGIN="+k.plugin, raceExit, mark, "XDG_RUNTIME_DIR="+dir)
	out, err := host.StdoutPipe()
	if err == nil {
		err = host.Start()
	}
	if err != nil {
		k.t.Error(err)
		return 0
	}
	begin := time.Now()
	timer := time.AfterFunc(after, func() { host.Process.Signal(s) })
	_, _ = out.Read(make([]byte, 100)) // until the plugin is there, or the host is not
	lived := time.Since(begin)
	host.Process.Signal(s)
	_ = host.Wait()
	timer.Stop()
	k.gone(mark, fmt.Sprintf("%v at %v", s, after))
	if k.plugin == "listens" {
		k.sweep(dir)
	}
	isEmpty(k.t, dir)
	return lived
}

// gone waits until no process has a mark in its environment.
func (k *killer) gone(mark, when string) {
	for deadline := time.Now().Add(hang); ; runtime.Gosched() {
		pid := marked(mark)
		if pid == 0 {
			return
		}
		if time.Now().After(deadline) {
			k.t.Errorf("%s: process %d is left", when, pid)
			unix.Kill(pid, unix.SIGKILL)
			return
		}
	}
}

// sweep does what the next start of a plugin does.
func (k *killer) sweep(dir string) {
	host := exec.Command("/proc/self/exe")
	host.Env = append(os.Environ(), roleKey+"=sweep", "XDG_RUNTIME_DIR="+dir)
	if out, err := host.CombinedOutput(); err != nil {
		k.t.Errorf("%v: %s", err, out)
	}
}

// marked returns a process with a variable in its environment, 0 if there is none.
func marked(mark string) int {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		if env, err := os.ReadFile(path); err == nil && bytes.Contains(env, []byte(mark)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}
