package plans

import "unicode"

// Sizes of text in a drawing, in pixels.
const (
	small = 11
	large = 14 // and bold
	inset = 4  // of the text of a box
)

// widest is at least the width of a text in pixels, in whatever font of no serifs a reader has.
func widest(text string, size float64, bold bool) float64 {
	const bolder = 1.15
	em := 0.0
	for _, c := range text {
		switch {
		case c == 'i', c == 'j', c == 'l', c == ' ', c == '.', c == ',', c == ':', c == ';', c == '-', c == '|', c == '\'':
			em += 0.4
		case c == 'm', c == 'w', c == 'M', c == 'W', c == '@', c > unicode.MaxASCII:
			em++
		case unicode.IsUpper(c), c == '%', c == '&':
			em += 0.85
		default:
			em += 0.65
		}
	}
	if bold {
		em *= bolder
	}
	return em * size
}
