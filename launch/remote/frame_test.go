package remote

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/launch"
)

func TestFramesArriveAsSent(t *testing.T) {
	var b bytes.Buffer
	out := &frames{w: &b}
	big := bytes.Repeat([]byte("x"), 200<<10)
	if err := errors.Join(out.write(kindSignal, []byte{15}), out.write(kindIn, nil), out.value(kindEnd, end{Result: launch.Result{Code: 7, Rank: 3}, Error: "e"})); err != nil {
		t.Fatal(err)
	}
	if n, err := (stream{out, kindOut}).Write(big); n != len(big) || err != nil {
		t.Fatal(n, err)
	}
	var kinds []byte
	var text []byte
	for {
		f, err := readFrame(&b)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, f.kind)
		switch f.kind {
		case kindOut:
			text = append(text, f.body...)
		case kindEnd:
			if x, err := decode[end](f); err != nil || x.Code != 7 || x.Rank != 3 || x.Error != "e" {
				t.Errorf("%+v, %v", x, err)
			}
		}
	}
	if string(kinds) != "gixoooo" || !bytes.Equal(text, big) {
		t.Errorf("kinds %q, %d bytes of output", kinds, len(text))
	}
}

// Output of several hosts is mixed by lines.
func TestFramesEndWithLines(t *testing.T) {
	var b bytes.Buffer
	line := append(bytes.Repeat([]byte("x"), 999), '\n')
	whole := append(bytes.Repeat(line, 200), "the rest"...)
	if n, err := (stream{&frames{w: &b}, kindOut}).Write(whole); n != len(whole) || err != nil {
		t.Fatal(n, err)
	}
	var text []byte
	for {
		f, err := readFrame(&b)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text = append(text, f.body...); len(text) < len(whole) && text[len(text)-1] != '\n' {
			t.Errorf("a frame ends within a line, at byte %d", len(text))
		}
	}
	if !bytes.Equal(text, whole) {
		t.Errorf("%d bytes came, expected %d", len(text), len(whole))
	}
}

func TestFramesThatAreNone(t *testing.T) {
	huge := binary.LittleEndian.AppendUint32([]byte{kindOut}, maxFrame+1)
	if _, err := readFrame(bytes.NewReader(huge)); !errors.Is(err, framework.ErrPeer) {
		t.Errorf("a huge frame: %v", err)
	}
	if _, err := readFrame(bytes.NewReader([]byte{kindOut, 9, 0, 0, 0, 1})); err != io.ErrUnexpectedEOF {
		t.Errorf("a frame cut short: %v", err)
	}
	if _, err := decode[end](frame{kindEnd, []byte("{")}); !errors.Is(err, framework.ErrPeer) {
		t.Errorf("no JSON: %v", err)
	}
	if err := (&frames{w: io.Discard}).write(kindSpec, make([]byte, maxFrame+1)); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("too much to send: %v", err)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{kindEnd, 2, 0, 0, 0, '{', '}'})
	f.Add([]byte{kindSpec, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte("motd\n" + greeting + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			got, err := readFrame(r)
			if err != nil {
				return
			}
			if len(got.body) > len(data) {
				t.Fatalf("a body of %d bytes from %d", len(got.body), len(data))
			}
			_, _ = decode[Spec](got)
			_, _ = decode[Hello](got)
			_, _ = decode[end](got)
		}
	})
}
