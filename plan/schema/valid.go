package schema

// valid reports whether a text is JSON for certain. It takes a third of the time of encoding/json, which is asked where the answer is no.
func valid(data []byte) bool {
	v := validator{data}
	end := v.value(v.space(0), 0)
	return end >= 0 && v.space(end) == len(data)
}

// validator walks over a text. Its functions take a position, and return the one behind what they have found; negative: it is not there.
type validator struct{ data []byte }

const (
	absent      = -1
	mostNesting = 64
)

// at is the byte at a position; 0 behind the end, which is no byte of JSON.
func (v validator) at(i int) byte {
	if uint(i) < uint(len(v.data)) {
		return v.data[i]
	}
	return 0
}

func (v validator) space(i int) int {
	for i >= 0 && i < len(v.data) {
		switch v.data[i] {
		case ' ', '\n', '\r', '\t':
			i++
		default:
			return i
		}
	}
	return i
}

func (v validator) value(i, depth int) int {
	switch c := v.at(i); {
	case c == '"':
		return v.text(i + 1)
	case c == '{' && depth < mostNesting:
		return v.members(i+1, depth, '}')
	case c == '[' && depth < mostNesting:
		return v.members(i+1, depth, ']')
	case c == '-' || c >= '0' && c <= '9':
		return v.number(i)
	case c == 't':
		return v.word(i, "true")
	case c == 'f':
		return v.word(i, "false")
	case c == 'n':
		return v.word(i, "null")
	}
	return absent
}

// members are those of an object or a list, to its end.
func (v validator) members(i, depth int, end byte) int {
	if i = v.space(i); v.at(i) == end {
		return i + 1
	}
	for {
		if end == '}' {
			if v.at(i) != '"' {
				return absent
			}
			if i = v.space(v.text(i + 1)); v.at(i) != ':' {
				return absent
			}
			i = v.space(i + 1)
		}
		i = v.space(v.value(i, depth+1))
		switch v.at(i) {
		case end:
			return i + 1
		case ',':
			i = v.space(i + 1)
		default:
			return absent
		}
	}
}

// text is a string behind its first quote.
func (v validator) text(i int) int {
	for ; i < len(v.data); i++ {
		switch c := v.data[i]; {
		case c == '"':
			return i + 1
		case c < ' ', c == '\\': // the other package knows escapes
			return absent
		}
	}
	return absent
}

func (v validator) digits(i int) int {
	first := i
	for c := v.at(i); c >= '0' && c <= '9'; c = v.at(i) {
		i++
	}
	if i == first {
		return absent
	}
	return i
}

// number is a whole one: the other package knows the rest.
func (v validator) number(i int) int {
	if v.at(i) == '-' {
		i++
	}
	end := v.digits(i)
	if end > i+1 && v.at(i) == '0' {
		return absent
	}
	switch v.at(end) {
	case '.', 'e', 'E':
		return absent
	}
	return end
}

func (v validator) word(i int, word string) int {
	if end := i + len(word); end <= len(v.data) && string(v.data[i:end]) == word {
		return end
	}
	return absent
}
