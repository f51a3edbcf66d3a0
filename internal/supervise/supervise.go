// Package supervise finds and ends processes that would outlive a job. It is small
// on purpose, and imports little: the supervisor, a process of its own that outlives
// a killed launcher, should be ready before the rest of the program that contains it
// has been initialized.
package supervise

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Arg is the argument by which a program is asked to be a supervisor. The mark of
// the job follows; groups come on standard input.
const Arg = "--supervise-job"

// Mark is the variable by which the processes of one launcher are found. It is not
// the job's name, because a job may have a launcher on each of several hosts.
const Mark = "MSCCLPP_LAUNCH_ID"

// Farewell announces to the supervisor that the launcher ends in order.
const Farewell = "bye"

// bound is how long the kernel may take to end killed processes.
const bound = 5 * time.Second

// Run is the supervisor: it reads groups from r and, when r ends without a
// Farewell, kills them and every process of this user that carries the mark of the
// job. It gives up after bound.
func Run(r io.Reader, job string) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	groups := map[int]bool{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == Farewell {
			return
		}
		if n, err := strconv.Atoi(line); err == nil && n > 1 {
			groups[n] = true
		}
	}
	deadline := time.Now().Add(bound)
	for clean := 0; clean < 2 && time.Now().Before(deadline); {
		if killMarked(groups, job) == 0 {
			clean++ // twice, because a process can fork while the list is read
		} else {
			clean = 0
		}
	}
}

// killMarked kills what belongs to the job and returns how many processes that
// were.
func killMarked(groups map[int]bool, job string) int {
	mark := []byte(Mark + "=" + job)
	self, n := os.Getpid(), 0
	var pids []int
	Each(func(pid int, s Stat) {
		if pid != self && !s.Ended && (groups[s.Group] || job != "" && marked(pid, mark)) {
			pids = append(pids, pid)
		}
	})
	for _, pid := range pids {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	for _, pid := range pids {
		awaitEnd(pid, 100*time.Millisecond)
	}
	return n
}

// marked reports whether the environment with which a process was started has the
// mark. Processes of other users cannot be read, and are not ours.
func marked(pid int, mark []byte) bool {
	folder := "/proc/" + strconv.Itoa(pid)
	files := []string{folder + "/environ"}
	if first, ok := Of(pid); ok && first.State == 'Z' { // its first thread has none any more
		files, _ = filepath.Glob(folder + "/task/*/environ")
	}
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, e := range bytes.Split(env, []byte{0}) {
			if bytes.Equal(e, mark) {
				return true
			}
		}
	}
	return false
}
