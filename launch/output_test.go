package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestTagsKeepLinesWhole(t *testing.T) {
	j := helper(12, "lines")
	j.Output.Tag = true
	_, out, _ := run(t, j)
	line := regexp.MustCompile(`^\[( ?\d+)\] (line \d+ of rank (\d+)|no newline at the end)$`)
	n := 0
	for l := range strings.Lines(out) {
		m := line.FindStringSubmatch(strings.TrimSuffix(l, "\n"))
		if m == nil || m[3] != "" && strings.TrimSpace(m[1]) != m[3] {
			t.Fatalf("line %q is torn or tagged with another rank", l)
		}
		n++
	}
	if n != 12*201 {
		t.Errorf("%d lines, expected %d", n, 12*201)
	}
}

func TestTimestamps(t *testing.T) {
	j := helper(1, "lines")
	j.Output.Tag, j.Output.Timestamp = true, true
	_, out, _ := run(t, j)
	line := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} \[0\] (line \d+ of rank 0|no newline at the end)\n$`)
	n := 0
	for l := range strings.Lines(out) { // of both streams, in whatever order they came
		if n++; !line.MatchString(l) {
			t.Fatalf("line %q has no time in front", l)
		}
	}
	if n != 201 {
		t.Errorf("%d lines, expected 201", n)
	}
}

func TestOutputFolder(t *testing.T) {
	for name, c := range map[string]struct{ tee, stamp bool }{"direct": {false, false}, "tee": {true, false}, "stamped": {false, true}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "deep", "er")
			j := helper(2, "lines")
			j.Output = Output{Dir: dir, Tee: c.tee, Timestamp: c.stamp, Tag: true}
			_, out, _ := run(t, j)
			for _, rank := range []string{"0", "1"} {
				data, err := os.ReadFile(filepath.Join(dir, "rank-"+rank+".out"))
				if err != nil {
					t.Fatal(err)
				}
				if n := strings.Count(string(data), "of rank "+rank+"\n"); n != 200 || strings.Contains(string(data), "[") {
					t.Errorf("rank-%s.out has %d lines of that rank, expected 200 without tags", rank, n)
				}
				if c.stamp != strings.HasPrefix(string(data), "20") {
					t.Errorf("rank-%s.out begins with %q", rank, data[:20])
				}
				data, err = os.ReadFile(filepath.Join(dir, "rank-"+rank+".err"))
				if err != nil || !strings.Contains(string(data), "no newline at the end") {
					t.Errorf("rank-%s.err: %q, %v", rank, data, err)
				}
			}
			if printed := strings.Count(out, "of rank"); c.tee && printed != 400 || !c.tee && printed != 0 {
				t.Errorf("%d lines were printed", printed)
			}
		})
	}
}

// Lines that do not fit where they were to go are not lost without a word; a closed
// pipe is no reason for one. The ranks go on, but the job has not succeeded.
func TestLostOutputIsReported(t *testing.T) {
	full := func(t *testing.T) *os.File {
		t.Helper()
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, j *Job)
		want    string
	}{
		"standard output": {func(t *testing.T, j *Job) { j.Stdout, j.Output.Tag = full(t), true }, "/dev/full: no space left on device"},
		"a file": {func(t *testing.T, j *Job) {
			j.Output = Output{Dir: t.TempDir(), Timestamp: true}
			if err := os.Symlink("/dev/full", filepath.Join(j.Output.Dir, "rank-0.out")); err != nil {
				t.Fatal(err)
			}
		}, "rank-0.out: no space left on device"},
		"nobody": {func(t *testing.T, j *Job) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { write.Close() })
			read.Close()
			j.Stdout, j.Output.Tag = write, true
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var report strings.Builder
			j := helper(2, "lines")
			j.Stdout, j.Stderr, j.Report = io.Discard, io.Discard, &report
			c.prepare(t, &j)
			code := 0
			if c.want != "" {
				code = 1
			}
			if r, err := Run(t.Context(), j); err != nil || r.Rank != -1 || r.Code != code {
				t.Errorf("%+v, %v: expected code %d, and that the ranks go on", r, err, code)
			}
			want := "mscclpp-run: output of ranks was lost: write "
			if c.want == "" && report.Len() > 0 || c.want != "" && (!strings.HasPrefix(report.String(), want) || !strings.Contains(report.String(), c.want)) {
				t.Errorf("report %q, expected %q", report.String(), c.want)
			}
		})
	}
}

func TestOutputFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := helper(1, "lines")
	j.Output.Dir = filepath.Join(file, "sub")
	if _, err := Run(t.Context(), j); err == nil || !strings.Contains(err.Error(), "output folder") {
		t.Errorf("error %v, expected one about the output folder", err)
	}
}

// An output file whose place another user has taken is not written through.
func TestOutputBehindAnothersLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	dir := t.TempDir()
	mine, link := filepath.Join(dir, "mine"), filepath.Join(dir, "rank-0.out")
	if err := errors.Join(os.WriteFile(mine, []byte("mine"), 0o600), os.Symlink(mine, link), os.Lchown(link, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	j := helper(1, "lines")
	j.Output.Dir = dir
	if _, err := Run(t.Context(), j); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "output of rank 0") {
		t.Errorf("error %v, expected that it is another user's", err)
	}
	if got, err := os.ReadFile(mine); err != nil || string(got) != "mine" {
		t.Errorf("the file is now %d bytes, %v", len(got), err)
	}
}

func TestStdinGoesToRank0(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	write.WriteString("typed")
	write.Close()
	defer read.Close()
	j := helper(3, "stdin")
	j.Stdin = read
	_, out, _ := run(t, j)
	for _, want := range []string{`rank 0 read 5 "typed" <nil>`, `rank 1 read 0 "" <nil>`, `rank 2 read 0 "" <nil>`} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
}

func TestVeryLongLines(t *testing.T) {
	var got strings.Builder
	l := &liner{tag: "[0] ", sinks: []*sink{newSink(&got)}}
	l.copy(strings.NewReader(strings.Repeat("x", 3*maxLine) + "\nend"))
	for line := range strings.Lines(got.String()) {
		if !strings.HasPrefix(line, "[0] ") || len(line) > 2*maxLine {
			t.Errorf("a line of %d bytes that begins with %.10q", len(line), line)
		}
	}
	if n := strings.Count(got.String(), "x"); n != 3*maxLine {
		t.Errorf("%d bytes came through, expected %d", n, 3*maxLine)
	}
}

// A pager that nobody scrolls keeps the job waiting, as it does any program, but not a request to
// end the job.
func TestNobodyReads(t *testing.T) {
	for name, prepare := range map[string]func(j *Job, to io.Writer){
		"output": func(j *Job, to io.Writer) { j.Stdout, j.Output.Tag = to, true },
		"report": func(j *Job, to io.Writer) { j.Report = to },
	} {
		t.Run(name, func(t *testing.T) {
			read, write := io.Pipe()
			defer read.Close()
			to := &announcing{Writer: write, began: make(chan struct{})}
			j := helper(2, "exit", "CULPRIT=1", "CODE=3")
			if name == "output" {
				j = helper(2, "lines")
			}
			signals := make(chan os.Signal, 1)
			j.Stdout, j.Stderr, j.Signals = io.Discard, io.Discard, signals
			prepare(&j, to)
			done := begin(t.Context(), t, j)
			<-to.began
			signals <- syscall.SIGTERM
			select {
			case r := <-done:
				if r.Code == 0 {
					t.Errorf("%+v: expected a failure", r)
				}
			case <-time.After(patience / 2): // below the grace of helpers
				t.Fatal("the job does not end")
			}
		})
	}
}

// Output that is in a pipe when the bound for its writers has passed is not lost, though it is
// taken later still; the bound is for a writer that lives on.
func TestOutputThatIsTakenLate(t *testing.T) {
	read, write := io.Pipe()
	to := &announcing{Writer: write, began: make(chan struct{})}
	j := helper(1, "lines")
	j.Stdout, j.Output.Tag = to, true
	o, err := newOutputs(&j)
	if err != nil {
		t.Fatal(err)
	}
	own := o.of[0].stdout
	emit := func(text string) {
		if _, err := own.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	emit("first\n")
	<-to.began
	emit(strings.Repeat("and more\n", 5000))
	for _, p := range o.pipes {
		if err := p.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		o.copying.Wait()
		write.Close()
	}()
	got, err := io.ReadAll(read)
	if want := "[0] first\n" + strings.Repeat("[0] and more\n", 5000); err != nil || string(got) != want {
		t.Errorf("%v, %d bytes, expected %d", err, len(got), len(want))
	}
	o.closeChildEnds()
	o.drain(nil)
}

// announcing closes began when it is written to.
type announcing struct {
	io.Writer
	once  sync.Once
	began chan struct{}
}

func (a *announcing) Write(b []byte) (int, error) {
	a.once.Do(func() { close(a.began) })
	return a.Writer.Write(b)
}

// odd is output that is not lines: a line longer than any buffer, bytes that are no text,
// and no end of the line at the end.
var odd = strings.Repeat("x", 3*maxLine) + "\n\x00\xff\r\n\nhalf\n" + strings.Repeat("y", maxLine+1) + "\nend"

// Bytes pass unchanged where nothing is put in front of lines, into files also where
// something is put in front of what is printed.
func TestBytesPassUnchanged(t *testing.T) {
	for name, output := range map[string]Output{"printed": {}, "tee": {Tee: true, Dir: "x"}, "tagged tee": {Tee: true, Dir: "x", Tag: true}} {
		t.Run(name, func(t *testing.T) {
			var printed strings.Builder
			j := helper(1, "lines")
			j.Output, j.Stdout, j.Stderr = output, &printed, io.Discard
			if output.Dir != "" {
				j.Output.Dir = t.TempDir()
			}
			o, err := newOutputs(&j)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := o.of[0].stdout.WriteString(odd); err != nil {
				t.Fatal(err)
			}
			o.closeChildEnds()
			o.copying.Wait()
			o.drain(nil)
			if got := printed.String(); !output.Tag && got != odd || output.Tag && !strings.HasSuffix(got, "[0] half\n[0] "+strings.Repeat("y", maxLine+1)+"\n[0] end\n") {
				t.Errorf("%d bytes were printed, %q to %q; the rank wrote %d", len(got), got[:10], got[len(got)-10:], len(odd))
			}
			if output.Dir == "" {
				return
			}
			if got, err := os.ReadFile(filepath.Join(j.Output.Dir, "rank-0.out")); err != nil || string(got) != odd {
				t.Errorf("the file has %d bytes, %v; the rank wrote %d", len(got), err, len(odd))
			}
		})
	}
}

// writes keeps what each write had.
type writes [][]byte

func (w *writes) Write(b []byte) (int, error) {
	*w = append(*w, bytes.Clone(b))
	return len(b), nil
}

// A reader that takes 4 KiB a second has taken something each second: output is written in such steps, and each is noted.
func TestOutputIsWrittenInSteps(t *testing.T) {
	var text bytes.Buffer
	for i := range 3000 {
		fmt.Fprintf(&text, "line %d of a rank that writes more than a pipe holds\n", i)
	}
	var got writes
	noted := 0
	s := newSink(&got)
	s.wrote = func(error) { noted++ }
	(&liner{sinks: []*sink{s}}).copy(bytes.NewReader(text.Bytes()))
	for i, b := range got {
		if len(b) > 4<<10 || b[len(b)-1] != '\n' {
			t.Errorf("write %d has %d bytes, and ends with %q: expected whole lines of at most 4 KiB", i, len(b), b[len(b)-1])
		}
	}
	if noted != len(got) || !bytes.Equal(bytes.Join(got, nil), text.Bytes()) {
		t.Errorf("%d writes, of which %d were noted: expected all, with all of the text", len(got), noted)
	}
}
