package main

import (
	"bytes"
	"fmt"
	"math"
)

// ownPart is how much the peer may add to the generated decoder, which is not its
// own: a slower peer would flatter plegd.
const ownPart = 1.2

// limits are the ratios that plegd is held to.
var limits = map[int]struct{ peer, floor, alloc float64 }{
	110: {1. / 4, 1.5, 1. / 40}, 500: {1. / 6, 1.5, 1. / 100}, 2000: {1. / 8, 1.8, 1. / 100}, 5000: {1. / 10, 1.8, 1. / 100},
}

// summary says how the steady state's ratios stand to their limits, and how
// cost grows.
func summary(pods []float64, rows []map[string]result) {
	fmt.Println()
	for i, n := range pods {
		want, ok := limits[int(n)]
		if !ok {
			continue
		}
		floor, decode, peer, plegd := rows[i]["floor"], rows[i]["decode"], rows[i]["peer"], rows[i]["plegd"]
		of := func(a, b float64, most float64) string {
			word := "met"
			if a/b > most {
				word = "NOT MET"
			}
			return fmt.Sprintf("%.3f (<= %.3g: %s)", a/b, most, word)
		}
		fmt.Printf("%6d pods: plegd/peer %s, plegd/floor %s, allocated bytes plegd/peer %s, peer/decode %s\n", int(n),
			of(ms(plegd.cpu()), ms(peer.cpu()), want.peer), of(ms(plegd.cpu()), ms(floor.cpu()), want.floor),
			of(plegd.allocBytes(), peer.allocBytes(), want.alloc), of(ms(peer.cpu()), ms(decode.cpu()), ownPart))
	}
	for _, name := range subjects() {
		var x, y []float64
		for i, n := range pods {
			if n >= 110 {
				x, y = append(x, n), append(y, ms(rows[i][name].cpu()))
			}
		}
		if len(x) < 3 {
			return
		}
		a, b, r2 := fit(x, y)
		fmt.Printf("%-6s cpu from 110 pods on: %.3f ms + %.3f us a pod, R2 %.4f\n", name, a, b*1000, r2)
	}
}

// fit is the least-squares line y = a + b x, and how much of y's variance it
// explains.
func fit(x, y []float64) (a, b, r2 float64) {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	b = (n*sxy - sx*sy) / (n*sxx - sx*sx)
	a = (sy - b*sx) / n
	var left, all float64
	for i := range y {
		d := y[i] - a - b*x[i]
		left += d * d
		d = y[i] - sy/n
		all += d * d
	}
	return a, b, 1 - left/all
}

// plot draws CPU a relist against pods, both axes logarithmic: a straight line
// of slope 1 is cost that grows with the pods.
func plot(pods []float64, rows []map[string]result) []byte {
	const w, h, left, bottom, top = 640, 400, 60, 350, 20
	x := func(v float64) float64 { return left + (w-left-110)*math.Log10(v/10)/math.Log10(500) }
	y := func(v float64) float64 { return bottom - (bottom-top)*math.Log10(v/0.05)/math.Log10(4000) }
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", w, h)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", w, h)
	for _, v := range []float64{0.1, 1, 10, 100} {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left, y(v), w-110, left-6, y(v)+4, v)
	}
	for _, v := range pods {
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#eee"/><text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", x(v), top, bottom, x(v), bottom+16, v)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">pods, 2 containers each</text>`+"\n", w/2-30, h-12)
	fmt.Fprintf(&b, `<text x="14" y="%d" text-anchor="middle" transform="rotate(-90 14 %d)">CPU of a relist, ms</text>`+"\n", h/2, h/2)
	colours := map[string]string{"floor": "#888", "floor+": "#bbb", "decode": "#e99", "peer": "#c33", "plegd": "#27c"}
	for _, name := range subjects() {
		points, last := "", 0.0
		for i, n := range pods {
			last = ms(rows[i][name].cpu())
			points += fmt.Sprintf("%.1f,%.1f ", x(n), y(last))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(n), y(last), colours[name])
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", points, colours[name])
		at := y(last) + 4
		switch name { // they lie close together
		case "floor":
			at += 8
		case "floor+":
			at += 18
		case "decode":
			at += 12
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", x(pods[len(pods)-1])+8, at, colours[name], name)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
