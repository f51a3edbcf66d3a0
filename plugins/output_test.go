package plugins

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plugins/internal/environ"
)

func logTo(b *buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, nil)) // from Info
}

func TestOutputReachesTheLog(t *testing.T) {
	log := &buffer{}
	spec := self(t, "noisy")
	spec.Name, spec.Log = "mirror", logTo(log)
	open(t, spec).Shutdown()
	for _, want := range []string{
		`level=INFO msg="from C" plugin=mirror`,
		`level=INFO msg="from fmt" plugin=mirror`,
		`level=INFO msg="from stderr" plugin=mirror`,
		`level=WARN msg="from slog" plugin=mirror answer=42`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log.String(), "details") {
		t.Error("a line below the host's level was sent")
	}
}

func TestEnvironmentOfAPlugin(t *testing.T) {
	t.Setenv("MSCCLPP_SECRET_FILE", "/secret")
	t.Setenv("LD_PRELOAD", "")
	t.Setenv("IBV_FORK_SAFE", "1")
	log := &buffer{}
	spec := self(t, "reports")
	spec.Log = logTo(log)
	spec.Env, spec.Layouts = append(spec.Env, "VENDOR=yes"), []string{"aa", "bb"}
	open(t, spec).Shutdown()
	for _, want := range []string{"stdin=/dev/null", "group=true", "PATH=", fmt.Sprintf(`host="map[DeviceABI:%d Layouts:[aa bb]]"`, kernel.ABI), "VENDOR=yes", "IBV_FORK_SAFE=1", controlKey + "=3"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("expected %s in the plugin:\n%s", want, log)
		}
	}
	for _, secret := range []string{"MSCCLPP_SECRET_FILE", "LD_PRELOAD"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%s was passed on", secret)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := environ.Filter([]string{"PATH=/bin", "LC_ALL=C", "PATHS=x", "AWS_SECRET=x", "CUDA_VISIBLE_DEVICES=1", controlKey + "=9", "MSCCLPP_PLUGIN_X=1"})
	want := "PATH=/bin LC_ALL=C CUDA_VISIBLE_DEVICES=1 MSCCLPP_PLUGIN_X=1"
	if strings.Join(got, " ") != want {
		t.Errorf("got %v, expected %s", got, want)
	}
}

func TestStartedByHand(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleKey+"=mirror")
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "is a transport plugin of mscclpp-go") {
		t.Errorf("got %v and %q, expected exit status 2 and an explanation", err, out)
	}
}

func TestParseLine(t *testing.T) {
	cases := []struct {
		line, message string
		level         slog.Level
		attrs         int
	}{
		{"plain", "plain", slog.LevelInfo, 0},
		{`{"time":"x","level":"ERROR","msg":"m","k":1}`, "m", slog.LevelError, 1},
		{`{"@level":"warn","@message":"m","@timestamp":"x","@module":"y"}`, "m", slog.LevelWarn, 1},
		{`{"@level":"trace","@message":"m"}`, "m", slog.LevelDebug, 0},
		{`{"level":"DEBUG+2","msg":"m"}`, "m", slog.LevelDebug + 2, 0},
		{`{"no":"level"}`, `{"no":"level"}`, slog.LevelInfo, 0},
		{`{broken`, `{broken`, slog.LevelInfo, 0},
	}
	for _, c := range cases {
		level, message, attrs := parseLine(c.line)
		if level != c.level || message != c.message || len(attrs) != c.attrs {
			t.Errorf("%s: got %v %q %v", c.line, level, message, attrs)
		}
	}
}

func TestLastLines(t *testing.T) {
	o := newOutput(logTo(&buffer{}))
	w := &writer{o: o}
	for range 30 {
		w.Write([]byte("some wo"))
		w.Write([]byte("rds\n" + strings.Repeat("y", 2*tailWidth) + "\n"))
	}
	if last := o.last(); len(last) != tailLines || last[0] != "some words" || len(last[1]) > tailWidth+3 {
		t.Errorf("got %q", last)
	}
	// A message often leaves the cause to its attributes.
	o.copy(strings.NewReader(`{"@level":"error","@message":"plugin init error","error":"no space left","socket":7}`))
	if last := o.last(); last[len(last)-1] != "plugin init error error=no space left socket=7" {
		t.Errorf("got %q, expected the attributes as well", last)
	}
	o.copy(strings.NewReader("panic: boom\n\ngoroutine 1 [running]:\nunfinished"))
	if last := o.last(); len(last) != 1 || last[0] != "panic: boom" {
		t.Errorf("got %q, expected the headline of the crash", last)
	}
}

// The report of a crash ends in registers.
func TestHeadlineOfACrash(t *testing.T) {
	for _, headline := range []string{
		"panic: boom", "fatal error: stack overflow", "runtime/cgo: pthread_create failed: Resource temporarily unavailable",
		"SIGSEGV: segmentation violation",
	} {
		o := newOutput(logTo(&buffer{}))
		o.copy(strings.NewReader("SIGN: here\n" + headline + "\nSIGABRT: abort\n" + strings.Repeat("gs     0x0\n", tailLines)))
		if last := o.last(); len(last) != 1 || last[0] != headline {
			t.Errorf("got %q, expected %q", last, headline)
		}
	}
}

// Output that is no text reaches messages as text, not as commands to a terminal.
func TestOutputThatIsNoText(t *testing.T) {
	for line, want := range map[string]string{
		"à côté\tof it": "à côté\tof it",
		"\x1b[2Jgone":   `"\x1b[2Jgone"`,
		"\xff\x00":      `"\xff\x00"`,
		strings.Repeat("x", tailWidth-1) + "ééé": strings.Repeat("x", tailWidth-1) + "…",
	} {
		o := newOutput(logTo(&buffer{}))
		o.line(line)
		if last := o.last(); len(last) != 1 || last[0] != want {
			t.Errorf("%q became %q, expected %q", line, last, want)
		}
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add("1|1|unix|/tmp/x|grpc")
	f.Add("1|1|unix|/tmp/x|grpc||true")
	f.Add("hello")
	f.Add("1|99999999999999999999|unix|x|grpc")
	f.Fuzz(func(t *testing.T, line string) {
		version, address, reason, err := parseHandshake(line)
		if (err == nil) != (reason == "") || err == nil && (version != 1 || address == "") {
			t.Errorf("%q: version %d, address %q, reason %q, error %v", line, version, address, reason, err)
		}
	})
}
