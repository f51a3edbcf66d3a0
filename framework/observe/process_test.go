package observe

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asRank is the variable by which this program is a rank whose main thread ends while it works.
const asRank = "MSCCLPP_TEST_RANK_WITHOUT_MAIN_THREAD"

func init() {
	if os.Getenv(asRank) != "" {
		runtime.LockOSThread() // main runs on the main thread
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(asRank) == "" {
		os.Exit(m.Run())
	}
	r, err := Open(Facts{Job: os.Getenv(asRank), Size: 1, Local: -1, HostID: "here"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		fmt.Println(r.Region())
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// A program may end its main thread, as by pthread_exit, and work on with others.
func TestRanksAreFoundWithoutTheirMainThread(t *testing.T) {
	job := fmt.Sprint("job-", os.Getpid())
	c := exec.CommandContext(t.Context(), "/proc/self/exe")
	c.Env = append(os.Environ(), asRank+"="+job)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}()
	path, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	process := fmt.Sprint("/proc/", c.Process.Pid)
	for enough := time.Now().Add(time.Minute); alive(process); <-time.After(time.Millisecond) {
		if time.Now().After(enough) {
			t.Fatal("the main thread does not end")
		}
	}
	if at := Process(process); !strings.HasPrefix(at, process+"/task/") || !alive(at) {
		t.Fatalf("%s: expected a thread of %s that lives", at, process)
	}

	// Readers of the same user find it, and so does a plugin, which has the path of the rank.
	all, err := Find(false)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, m := range all {
		for _, v := range m.Views() {
			found = found || v.Info().Job == job && v.Info().PID == c.Process.Pid
		}
		m.Close()
	}
	if !found {
		t.Error("the rank is not found")
	}
	file, _, _ := strings.Cut(path, ":")
	m, err := openMemory(file, true)
	if err != nil {
		t.Fatal(err)
	}
	if job := text(m.region(0).header().job[:]); job != fmt.Sprint("job-", os.Getpid()) {
		t.Errorf("the memory is of job %q", job)
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
}
