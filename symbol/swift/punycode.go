package swift

import "unicode/utf8"

// punycode decodes RFC 3492 with Swift's changes: _ before the encoded part, A to J for
// the digits; code points from D800 on are shifted ASCII.
func punycode(s string) (string, bool) {
	const base, tmin, tmax, skew, damp = 36, 1, 26, 38, 700
	var out []rune
	rest := s
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '_' {
			for _, c := range []byte(s[:i]) {
				if c >= utf8.RuneSelf {
					return "", false
				}
				out = append(out, rune(c))
			}
			rest = s[i+1:]
			break
		}
	}
	n, i, bias := 128, 0, 72
	for len(rest) > 0 {
		old, w := i, 1
		for k := base; ; k += base {
			if len(rest) == 0 || w > 1<<24 {
				return "", false
			}
			c := rest[0]
			rest = rest[1:]
			var digit int
			switch {
			case 'a' <= c && c <= 'z':
				digit = int(c - 'a')
			case 'A' <= c && c <= 'J':
				digit = int(c-'A') + 26
			default:
				return "", false
			}
			i += digit * w
			t := min(max(k-bias, tmin), tmax)
			if digit < t {
				break
			}
			w *= base - t
		}
		count := len(out) + 1
		delta := i - old
		if old == 0 {
			delta /= damp
		} else {
			delta /= 2
		}
		delta += delta / count
		k := 0
		for ; delta > (base-tmin)*tmax/2; k += base {
			delta /= base - tmin
		}
		bias = k + (base-tmin+1)*delta/(delta+skew)
		n += i / count
		i %= count
		r := rune(n)
		if 0xD800 <= r && r < 0xD880 {
			r -= 0xD800
		}
		if !utf8.ValidRune(r) || n > utf8.MaxRune {
			return "", false
		}
		out = append(out, 0)
		copy(out[i+1:], out[i:])
		out[i] = r
		i++
	}
	return string(out), true
}
