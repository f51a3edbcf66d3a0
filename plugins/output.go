package plugins

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Limits of what is kept of a plugin's output for error messages.
const (
	tailLines = 8
	tailWidth = 300
	lineLimit = 64 << 10 // longer lines are split
)

// output takes what a plugin prints: each line goes to the host's log, and the last
// ones are kept to explain its death.
type output struct {
	log *slog.Logger

	mu       sync.Mutex
	headline string // first line of a crash
	tail     []string
}

func newOutput(log *slog.Logger) *output { return &output{log: log} }

// level is the least level that the host shows, to spare the plugin the rest.
func (o *output) level() slog.Level {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn} {
		if o.log.Enabled(context.Background(), l) {
			return l
		}
	}
	return slog.LevelError
}

// copy reads lines until the end.
func (o *output) copy(r io.Reader) {
	in := bufio.NewReaderSize(r, lineLimit)
	for {
		line, err := in.ReadSlice('\n')
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			o.line(string(line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// line handles one line: a record of log/slog or hclog as JSON, or plain text.
func (o *output) line(text string) {
	level, message, attrs := parseLine(text)
	crash := crashes(text)
	o.mu.Lock()
	if crash && o.headline == "" {
		o.headline = shorten(message)
	}
	crashed := o.headline != ""
	said := message
	for _, a := range attrs {
		said += " " + a.String()
	}
	o.tail = append(o.tail, shorten(said))
	if len(o.tail) > tailLines {
		o.tail = o.tail[1:]
	}
	o.mu.Unlock()
	if crashed {
		level = max(level, slog.LevelError)
	}
	o.log.LogAttrs(context.Background(), level, message, attrs...)
}

// crashes reports whether a line begins the report of a crash: of Go, of a thread that could not be
// made, or by a signal in C, "SIGSEGV: segmentation violation". The last lines of such a report
// help nobody.
func crashes(text string) bool {
	for _, prefix := range []string{"panic: ", "fatal error: ", "runtime/cgo: "} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	name, _, ok := strings.Cut(text, ": ")
	return ok && unix.SignalNum(name) != 0
}

// shorten makes a line fit for a message: what a terminal would take for a command, or
// cannot print, is quoted.
func shorten(s string) string {
	more := ""
	if len(s) > tailWidth {
		s, more = strings.ToValidUTF8(s[:tailWidth], ""), "…"
	}
	odd := func(r rune) bool { return r != '\t' && !strconv.IsPrint(r) }
	if !utf8.ValidString(s) || strings.ContainsFunc(s, odd) {
		s = strconv.Quote(s)
	}
	return s + more
}

// last returns the lines that explain a death: the headline of a crash, or the last
// ones.
func (o *output) last() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.headline != "" {
		return []string{o.headline}
	}
	return slices.Clone(o.tail)
}

func parseLine(text string) (slog.Level, string, []slog.Attr) {
	var fields map[string]any
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &fields) != nil {
		return slog.LevelInfo, text, nil
	}
	name, ok := pop(fields, "level", "@level").(string)
	if !ok {
		return slog.LevelInfo, text, nil
	}
	level := slog.LevelInfo
	if level.UnmarshalText([]byte(strings.ToUpper(name))) != nil && name == "trace" {
		level = slog.LevelDebug
	}
	message, _ := pop(fields, "msg", "@message").(string)
	pop(fields, "time", "@timestamp") // the host's logger has its own
	var attrs []slog.Attr
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		attrs = append(attrs, slog.Any(strings.TrimPrefix(key, "@"), fields[key]))
	}
	return level, message, attrs
}

func pop(fields map[string]any, keys ...string) any {
	var v any
	for _, key := range keys {
		if found, ok := fields[key]; ok {
			v = found
			delete(fields, key)
		}
	}
	return v
}

// writer is an io.Writer that hands complete lines to an output. go-plugin writes to
// it what the plugin printed through os.Stdout and os.Stderr.
type writer struct {
	o *output

	mu   sync.Mutex
	rest []byte
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte{'\n'})
		if !found && len(w.rest) < lineLimit {
			return len(p), nil
		}
		w.o.line(string(line))
		w.rest = append([]byte(nil), rest...)
	}
}
