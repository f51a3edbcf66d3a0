package mscclpp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// patience is longer than anything in a test takes, on a machine that does much else as well.
const patience = 3 * time.Minute

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open makes a job of one rank that ends with the test.
func open(t *testing.T, options ...mscclpp.Option) *mscclpp.Job {
	t.Helper()
	job, err := mscclpp.Init(bounded(t), with(options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := job.Close(); err != nil {
			t.Error(err)
		}
	})
	return job
}

// file writes a configuration file.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestWithoutALauncherTheJobIsOneRank(t *testing.T) {
	job := open(t)
	if job.Rank() != 0 || job.Size() != 1 {
		t.Errorf("rank %d of %d", job.Rank(), job.Size())
	}
	if err := pass(bounded(t), job.World); err != nil {
		t.Error(err)
	}
	if o := job.Config.Origin("transports").String(); o != "WithSetting" {
		t.Errorf("the list of transports comes from %q", o)
	}
	if err := job.Close(); err != nil {
		t.Error(err)
	}
	if err := job.World.Err(); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A row that would be passed over is a mistake of the file that has it.
func TestTableWithAMistake(t *testing.T) {
	name := file(t, "collectives:\n  table:\n  - {algorithm: chunk}\n  - {collective: allreduce, algorithm: onshot_ll8}\n")
	_, err := mscclpp.Init(bounded(t), with(mscclpp.WithConfigFile(name))...)
	if !errors.Is(err, framework.ErrInvalid) {
		t.Fatalf("%v, expected ErrInvalid", err)
	}
	for _, want := range []string{name + ":2: ", "collectives.table: row 2: ", `"onshot_ll8" of allreduce (did you mean "oneshot_ll8"?)`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: expected it to say %q", err, want)
		}
	}
}

func TestTwoJobsInOneProcess(t *testing.T) {
	first, second := open(t), open(t)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := pass(bounded(t), second.World); err != nil {
		t.Errorf("the second job after the end of the first: %v", err)
	}
}

// For any mistake in the configuration, Init says which word of which file.
func TestMistakesAreNamed(t *testing.T) {
	path := file(t, "transports: [shm]\nplugins:\n  embed: [shm]\n")
	misspelled := file(t, "transports: [shm]\ncom:\n  scratch: 1MiB\n")
	option := file(t, "transports: [shm]\nplugins:\n  embed: [shm]\ntransport:\n  shm:\n    drain_spinn: 1ms\n")
	unused := file(t, "transports: [shm]\nplugins:\n  embed: [shm]\ntransport:\n  ib-host:\n    gid_index: 3\n")
	for name, c := range map[string]struct {
		options []mscclpp.Option
		class   error
		words   []string
	}{
		"a misspelled key": {
			[]mscclpp.Option{mscclpp.WithConfigFile(misspelled)}, framework.ErrInvalid, []string{misspelled + ":2", "com", "comm"}},
		"no such file": {
			[]mscclpp.Option{mscclpp.WithConfigFile(path + ".no")}, framework.ErrInvalid, []string{path + ".no"}},
		"a misspelled option of a transport": {
			[]mscclpp.Option{mscclpp.WithConfigFile(option)}, framework.ErrInvalid, []string{option, "drain_spinn", "drain_spin"}},
		"a misspelled option in a setting": {
			with(mscclpp.WithSetting("transport.shm.drain_cpus", "1")), framework.ErrInvalid, []string{"WithSetting", "drain_cpus", "drain_cpu"}},
		"options of a transport that is not used": {
			with(mscclpp.WithSetting("transport.smh.drain_cpu", "1")), framework.ErrInvalid, []string{"WithSetting", "transport.smh.drain_cpu", "[shm]"}},
		"options of a transport that is not used, in a file": {
			[]mscclpp.Option{mscclpp.WithConfigFile(unused)}, framework.ErrInvalid, []string{unused + ":6", "transport.ib-host.gid_index", "[shm]"}},
		"a section of a transport that is not used": {
			[]mscclpp.Option{mscclpp.WithConfigFile(file(t, "transports: [shm]\nplugins: {embed: [shm]}\ntransport: {smh: {}}\n"))}, framework.ErrInvalid, []string{"smh", "[shm]"}},
		"an unknown transport": {
			[]mscclpp.Option{mscclpp.WithSetting("transports", "shn")}, framework.ErrUnavailable, []string{"shn", "no plugin"}},
		"an unknown transport to embed": {
			with(mscclpp.WithSetting("transports", "shn"), mscclpp.WithSetting("plugins.embed", "shn")), framework.ErrInvalid, []string{"shn", "shm"}},
		"a transport twice": {
			with(mscclpp.WithSetting("transports", "shm,shm")), framework.ErrInvalid, []string{"shm", "twice"}},
		"an unknown device": {
			with(mscclpp.WithDevice("gpu")), framework.ErrInvalid, []string{`"gpu"`, "expected one of cuda, hip, host"}},
		"a row of the table": {
			[]mscclpp.Option{mscclpp.WithConfigFile(file(t, "transports: [shm]\nplugins: {embed: [shm]}\ncollectives: {table: [{collective: allredcue, algorithm: ring}]}\n"))},
			framework.ErrInvalid, []string{"allredcue"}},
		"a secret that is not there": {
			with(mscclpp.WithSetting("bootstrap.secret_file", path+".no")), framework.ErrInvalid, []string{path + ".no"}},
	} {
		t.Run(name, func(t *testing.T) {
			watch := promise.Begin()
			job, err := mscclpp.Init(bounded(t), c.options...)
			if err == nil {
				job.Close()
				t.Fatal("no error")
			}
			if !errors.Is(err, c.class) {
				t.Errorf("%v: expected %q", err, c.class)
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v: expected it to say %q", err, w)
				}
			}
			if err := watch.Kept(5 * time.Second); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLogFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "%r-%p.log")
	job := open(t, mscclpp.WithSetting("log.level", "debug"), mscclpp.WithSetting("log.file", name), mscclpp.WithSetting("log.format", "json"))
	job.World.Log().Warn("a message", "of", "the test")
	if err := job.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(name), "0-*.log"))
	if err != nil || len(found) != 1 {
		t.Fatalf("files %v, %v: expected one that begins with the rank", found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := `"msg":"a message"`; !bytes.Contains(text, []byte(want)) {
		t.Errorf("no %s in %s", want, text)
	}
}

func TestLogFileThatCannotBe(t *testing.T) {
	_, err := mscclpp.Init(bounded(t), with(mscclpp.WithSetting("log.level", "info"), mscclpp.WithSetting("log.file", "/no/such/folder/x"))...)
	if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "/no/such/folder/x") {
		t.Errorf("%v", err)
	}
}

// caught is what jobs print to standard error while f runs.
func caught(t *testing.T, f func(lines func(want string) bool)) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var text bytes.Buffer
	more := make(chan struct{}, 1)
	var group sync.WaitGroup
	group.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := r.Read(b)
			mu.Lock()
			text.Write(b[:n])
			mu.Unlock()
			select {
			case more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	})
	old := os.Stderr
	os.Stderr = w
	f(func(want string) bool {
		for ctx := bounded(t); ; {
			mu.Lock()
			ok := strings.Contains(text.String(), want)
			mu.Unlock()
			if ok {
				return true
			}
			select {
			case <-more:
			case <-ctx.Done():
				return false
			}
		}
	})
	os.Stderr = old
	w.Close()
	group.Wait()
	r.Close()
}

func TestSignalPrintsTheStateOfAllJobs(t *testing.T) {
	caught(t, func(printed func(string) bool) {
		first := open(t, mscclpp.WithDumpSignal(syscall.SIGUSR1))
		second := open(t, mscclpp.WithDumpSignal(syscall.SIGUSR2), mscclpp.WithSetting("log.dump_signal", "SIGUSR1"))
		defer first.Close()
		defer second.Close()
		first.World.OnDump(func(w io.Writer) { io.WriteString(w, "of the first\n") })
		second.World.OnDump(func(w io.Writer) { io.WriteString(w, "of the second\n") })
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"comm world: rank 0 of 1: running\n", "of the first\n", "of the second\n"} {
			if !printed(want) {
				t.Errorf("not printed: %q", want)
			}
		}
	})
}

// Init handles no signal that nobody has asked for: those of schedulers and of other
// libraries belong to the program.
func TestSignalsBelongToTheProgram(t *testing.T) {
	own := make(chan os.Signal, 1)
	signal.Notify(own, syscall.SIGUSR1)
	defer signal.Stop(own)
	asked := mscclpp.WithDumpSignal(syscall.SIGUSR1)
	for name, x := range map[string]struct {
		options []mscclpp.Option
		dumps   bool
	}{
		"nobody asks":          {nil, false},
		"the program asks":     {[]mscclpp.Option{asked}, true},
		"and takes it back":    {[]mscclpp.Option{asked, mscclpp.WithoutDumpSignal()}, false},
		"for another one":      {[]mscclpp.Option{mscclpp.WithDumpSignal(syscall.SIGUSR2)}, false},
		"configuration asks":   {[]mscclpp.Option{mscclpp.WithSetting("log.dump_signal", "SIGUSR1")}, true},
		"configuration has no": {[]mscclpp.Option{asked, mscclpp.WithSetting("log.dump_signal", "none")}, false},
	} {
		job := open(t, x.options...)
		dumped := false
		job.World.OnDump(func(io.Writer) { dumped = true })
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		<-own // any other that asked for it has it as well
		if err := job.Close(); err != nil {
			t.Fatal(err)
		}
		if dumped != x.dumps {
			t.Errorf("%s: the state was printed: %v, expected %v", name, dumped, x.dumps)
		}
	}
}

func TestDumpOfAJob(t *testing.T) {
	job := open(t)
	var b bytes.Buffer
	if err := job.Dump(&b); err != nil {
		t.Fatal(err)
	}
	if want := "comm world: rank 0 of 1: running\n"; b.String() != want {
		t.Errorf("%q, expected %q", b.String(), want)
	}
}

// Ranks with other lists of transports say so at once, and not that calls do not match.
func TestOtherTransportsAreRefused(t *testing.T) {
	for _, other := range []string{"tcp", "tcp,shm", "ib-host,tcp"} {
		t.Run(other, func(t *testing.T) {
			printed, codes := ranks(t, "over shm,tcp", "over "+other)
			want := []string{"rank 1", "its transports on host", fmt.Sprint(strings.Split(other, ",")), "those of rank 0 on host", "[shm tcp]", "expected the same list"}
			for r := range codes {
				if codes[r] != 3 || !strings.HasPrefix(printed[r], "late false, ") {
					t.Errorf("rank %d: code %d, %q: expected code 3 long before the time to appear is over", r, codes[r], printed[r])
				}
				for _, w := range want {
					if !strings.Contains(printed[r], w) {
						t.Errorf("rank %d: %q, expected it to say %q", r, printed[r], w)
					}
				}
			}
		})
	}
}

func TestJobOfTwoProcesses(t *testing.T) {
	printed, codes := ranks(t, "work", "work")
	for r, want := range []string{"rank 0 of 2 is done\n", "rank 1 of 2 is done\n"} {
		if codes[r] != 0 || printed[r] != want {
			t.Errorf("rank %d: code %d, %q, expected %q", r, codes[r], printed[r], want)
		}
	}
}

// A rank whose transport does not start tells the others why, and nobody waits for
// the end of a time limit.
func TestTransportThatFailsOnOneRankEndsAll(t *testing.T) {
	watch := promise.Begin()
	printed, codes := ranks(t, "work", "broken")
	if err := watch.Kept(8 * time.Second); err != nil {
		t.Error(err)
	}
	if codes[0] != 3 || !strings.Contains(printed[0], "peer 1: ") || !strings.Contains(printed[0], "drain_spin") {
		t.Errorf("rank 0: code %d, %q: expected an error that names rank 1 and its reason", codes[0], printed[0])
	}
	if codes[1] != 3 || !strings.Contains(printed[1], "drain_spin") {
		t.Errorf("rank 1: code %d, %q: expected its mistake", codes[1], printed[1])
	}
}
