-- A whole number that a text holds; nil for what others wrote that is none, or that does not fit.
local function whole(text) return text and #text <= 15 and tonumber(string.match(text, '^%d+$')) end
