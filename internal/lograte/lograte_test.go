package lograte

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestOneLineASecond(t *testing.T) {
	var out bytes.Buffer
	at := time.Unix(100, 0)
	l := Limiter{now: func() time.Time { return at }}
	log := slog.New(slog.NewTextHandler(&out, nil))
	for range 1000 {
		l.Log(log, slog.LevelWarn, "refused", "from", "192.0.2.1")
		at = at.Add(5 * time.Millisecond)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d lines in five seconds, expected 5", len(lines))
	}
	if strings.Contains(lines[0], "left_out") || !strings.Contains(lines[1], "left_out=199") || !strings.Contains(lines[1], "from=192.0.2.1") {
		t.Errorf("%q: expected all lines but the first to say how many were left out", lines)
	}
}

func TestNothingIsCountedThatIsNotLogged(t *testing.T) {
	var out bytes.Buffer
	var l Limiter
	log := slog.New(slog.NewTextHandler(&out, nil))
	for range 10 {
		l.Log(log, slog.LevelDebug, "dropped by its level")
	}
	l.Log(log, slog.LevelWarn, "refused")
	if got := out.String(); strings.Contains(got, "left_out") || !strings.Contains(got, "refused") {
		t.Errorf("%q", got)
	}
}
