package negotiate

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestReachIsPutTogether(t *testing.T) {
	lacks := func(size int, class error, ranks ...int) []byte {
		var m missing
		for _, r := range ranks {
			m.add(r, size, fmt.Errorf("%w: too far", class))
		}
		return m.encode()
	}
	nine := make([][]byte, 9) // more than a byte of bits
	nine[0], nine[8] = lacks(9, framework.ErrUnavailable, 8), nil
	for r := 1; r < 8; r++ {
		nine[r] = lacks(9, framework.ErrUnavailable, 8)
	}
	for name, c := range map[string]struct {
		said   [][]byte
		groups string
		class  error
	}{
		"all joined":         {[][]byte{nil, nil}, "[[0 1]]", nil},
		"two hosts":          {[][]byte{lacks(3, framework.ErrUnsupported, 1), lacks(3, framework.ErrUnsupported, 0, 2), nil}, "[[0 2] [1]]", framework.ErrUnsupported},
		"one side says so":   {[][]byte{lacks(2, framework.ErrUnavailable, 1), nil}, "[[0] [1]]", framework.ErrUnavailable},
		"a chain":            {[][]byte{lacks(3, framework.ErrUnavailable, 2), nil, lacks(3, framework.ErrUnavailable, 0)}, "[]", framework.ErrUnavailable},
		"the ninth is apart": {nine, "[[0 1 2 3 4 5 6 7] [8]]", framework.ErrUnavailable},
	} {
		reach, err := reachOf(c.said)
		if err != nil || fmt.Sprint(reach.Groups) != c.groups || (reach.Apart == nil) != (c.class == nil) || !errors.Is(reach.Apart, c.class) {
			t.Errorf("%s: %+v, %v, expected the groups %s and %v", name, reach, err, c.groups, c.class)
		}
	}
	for i, said := range [][][]byte{{{1}, nil}, {lacks(2, framework.ErrUnavailable, 1), {1}}} {
		if _, err := reachOf(said); !errors.Is(err, framework.ErrPeer) {
			t.Errorf("case %d: a message cut short: %v, expected ErrPeer", i, err)
		}
	}
}
