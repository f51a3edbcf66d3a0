package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// conversation gives an agent its input and returns the frames that it answers.
func conversation(t *testing.T, input []byte) (code int, answers []frame) {
	t.Helper()
	var out bytes.Buffer
	a := &Agent{In: bytes.NewReader(input), Out: &out, Version: "v1", Self: "/nosuch", Count: func(_ context.Context, c Count) (int, error) {
		switch c.Type {
		case "none":
			return 0, fmt.Errorf("%w: no device", framework.ErrUnavailable)
		case "broken":
			return 0, errors.New("no table")
		}
		return 10 + len(c.Backends), nil
	}}
	code = a.Serve(t.Context())
	r := bufio.NewReader(&out)
	if line, err := r.ReadString('\n'); err != nil || line != greeting+"\n" {
		t.Fatalf("greeting %q, %v", line, err)
	}
	for {
		f, err := readFrame(r)
		if err == io.EOF {
			return code, answers
		}
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, f)
	}
}

func message(t *testing.T, kind byte, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := (&frames{w: &b}).value(kind, v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAgentReportsItsHost(t *testing.T) {
	code, answers := conversation(t, nil)
	if code != 1 || len(answers) != 1 || answers[0].kind != kindHello {
		t.Fatalf("code %d, %v", code, answers)
	}
	h, err := decode[Hello](answers[0])
	if err != nil || h.Version != "v1" || h.CPUs < 1 {
		t.Errorf("%+v, %v", h, err)
	}
}

// An agent counts devices once it is asked, and takes a spec behind that.
func TestAgentCounts(t *testing.T) {
	for typ, want := range map[string]counted{
		"acme":   {Devices: 11},
		"none":   {None: "unavailable: no device"},
		"broken": {Failed: "no table"},
	} {
		ask := message(t, kindCount, Count{Type: typ, Backends: []Backend{{Type: typ, Path: "/x.so"}}})
		code, answers := conversation(t, append(ask, message(t, kindSpec, Spec{Args: []string{"x"}})...))
		if code != 1 || len(answers) != 3 || answers[1].kind != kindCounted || answers[2].kind != kindEnd {
			t.Fatalf("%s: code %d, %v", typ, code, answers)
		}
		if got, err := decode[counted](answers[1]); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v: expected %+v", typ, got, err, want)
		}
	}
	if _, answers := conversation(t, message(t, kindCount, "text")); len(answers) != 2 || !strings.Contains(string(answers[1].body), "message 'q'") {
		t.Errorf("%v: expected the reason why nothing was counted", answers)
	}
}

// The end of the launcher ends a count, which a driver may hold up for long.
func TestAgentThatCountsEndsWithTheLauncher(t *testing.T) {
	in, launcher := io.Pipe()
	began, ended := make(chan struct{}), make(chan int, 1)
	a := &Agent{In: in, Out: io.Discard, Count: func(ctx context.Context, _ Count) (int, error) {
		close(began)
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- a.Serve(ctx) }()
	if _, err := launcher.Write(message(t, kindCount, Count{})); err != nil {
		t.Fatal(err)
	}
	<-began
	launcher.Close()
	select {
	case code := <-ended:
		if code != 1 {
			t.Errorf("code %d, expected 1", code)
		}
	case <-time.After(patience):
		t.Errorf("the launcher is gone, and the agent still counts after %v", patience)
	}
}

func TestAgentRefuses(t *testing.T) {
	place := func(s Spec) Spec { s.Place.Local, s.Place.World = 1, 1; return s }
	for name, c := range map[string]struct {
		input []byte
		code  int
		want  string
	}{
		"another first message": {message(t, kindSignal, 1), 1, `the launcher began with a message 'g'`},
		"nonsense":              {message(t, kindSpec, "text"), 1, "message 's'"},
		"no program":            {message(t, kindSpec, place(Spec{Program: "nosuch", Args: []string{"nosuch"}})), 127, "program nosuch"},
		"no folder":             {message(t, kindSpec, place(Spec{Program: "sh", Args: []string{"sh"}, Dir: "/nosuch"})), 127, "expected it on every host"},
		"no binding":            {message(t, kindSpec, place(Spec{Args: []string{"x"}, Bind: "sofa"})), 1, "sofa"},
		"no ranks":              {message(t, kindSpec, Spec{Args: []string{"x"}}), 1, "0 ranks on this host"},
	} {
		t.Run(name, func(t *testing.T) {
			code, answers := conversation(t, c.input)
			if len(answers) == 0 {
				t.Fatal("no answer")
			}
			last := answers[len(answers)-1]
			var x end
			if err := json.Unmarshal(last.body, &x); err != nil || last.kind != kindEnd {
				t.Fatalf("%q, %v", last, err)
			}
			if code != c.code || x.Code != c.code || !strings.Contains(x.Error, c.want) {
				t.Errorf("code %d, %+v; expected %d, %q", code, x, c.code, c.want)
			}
		})
	}
}
